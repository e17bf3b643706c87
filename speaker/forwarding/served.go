package forwarding

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

// served is what the flows of one port depend on: where clients send to, and which endpoints may have it.
type served struct {
	clusterIP             netip.Addr
	external, vips, guest []netip.Addr
	port, nodePort        uint16
	serving               []netip.AddrPort
}

func servedBy(p desired.Port) served {
	return served{clusterIP: p.ClusterIP, external: p.ExternalIPs, vips: p.VIPs, guest: p.Guest, port: p.Port, nodePort: p.NodePort, serving: p.Serving}
}

func (s served) equal(o served) bool {
	return s.isAt(o) && slices.Equal(s.serving, o.serving) && slices.Equal(s.guest, o.guest)
}

// rank orders the ports that have an address, see desired.Port. Which of equal ones the kernel's rules choose changes with their
// endpoints, and does not count.
func (s served) rank(a netip.Addr) int {
	return desired.Port{VIPs: s.vips, ExternalIPs: s.external, Guest: s.guest}.Rank(a)
}

// isAt reports whether two states have the same destinations in the same order.
func (s served) isAt(o served) bool {
	return s.clusterIP == o.clusterIP && s.port == o.port && s.nodePort == o.nodePort &&
		slices.Equal(s.external, o.external) && slices.Equal(s.vips, o.vips)
}

// destinations yields where packets for a port are addressed to.
func (s served) destinations(key desired.PortKey) iter.Seq[destination] {
	return func(yield func(destination) bool) {
		for _, some := range [][]netip.Addr{{s.clusterIP}, s.external, s.vips} {
			for _, a := range some {
				if a.IsValid() && !yield(destination{key.Family, key.Protocol, netip.AddrPortFrom(a, s.port)}) {
					return
				}
			}
		}
		if s.nodePort != 0 {
			yield(nodePort(key.Family, key.Protocol, s.nodePort))
		}
	}
}

// change is what the flows of one port depended on and depend on now; nil stands for nothing.
type change struct {
	key      desired.PortKey
	from, to *served
}

// lacks reports whether one state of a port has not a destination that another one has; nil has none.
func (c change) lacks(one, other *served) bool {
	if one == nil || other == nil {
		return other != nil
	}
	if one.isAt(*other) {
		return false
	}
	all := slices.Collect(one.destinations(c.key))
	for at := range other.destinations(c.key) {
		if !slices.Contains(all, at) {
			return true
		}
	}
	return false
}

// changes yields the differences between the ports that the kernel has, since a revision of them but for those that
// were missing, and the wanted ones, for the ports that are in scope.
func changes(want desired.Forwarding, placed map[desired.PortKey]*served, at uint64, missing outcome.Missing, scope func(desired.PortKey) bool) iter.Seq[change] {
	return func(yield func(change) bool) {
		compare := func(key desired.PortKey) bool {
			if !scope(key) {
				return true
			}
			each := change{key: key, from: placed[key]}
			if port, wanted := want.Ports[key]; wanted {
				each.to = new(servedBy(port))
			}
			same := each.from == each.to || each.from != nil && each.to != nil && each.from.equal(*each.to)
			return same || yield(each)
		}
		for key := range missing {
			if !compare(key) {
				return
			}
		}
		for key := range want.ChangedSince(at, maps.Keys(placed)) {
			if _, compared := missing[key]; !compared && !compare(key) {
				return
			}
		}
	}
}

// takesAway reports whether a port lacks a destination or an endpoint that it had: flows may lead to what serves no more.
func (c change) takesAway() bool {
	return c.lacks(c.to, c.from) || c.from != nil && slices.ContainsFunc(c.from.serving, func(e netip.AddrPort) bool {
		_, still := slices.BinarySearchFunc(c.to.serving, e, netip.AddrPort.Compare)
		return !still
	})
}

// leadsHere reports whether a port has a destination that it had not: what clients sent there before went past it.
func (c change) leadsHere() bool { return c.lacks(c.from, c.to) }

// onlyNew reports whether all flows that are to be looked at went past what is new.
func (c *conntrackReconciler) onlyNew() bool {
	return len(c.pending) > 0 && !c.misled && len(c.orphans) == 0
}

// gaps are the times in which others had taken away or changed rules of ours, by family.
type gaps struct {
	repairs map[addr.Family]int // that are known of
	open    map[addr.Family]bool
}

func newGaps() gaps { return gaps{map[addr.Family]int{}, map[addr.Family]bool{}} }

// closed are the families of which an Apply found rules changed, it or one before it,
// and of which all are back now.
func (g gaps) closed(b Gauge, missing outcome.Missing, err error) map[addr.Family]bool {
	closed := map[addr.Family]bool{}
	lacking := outcome.Behind(missing, err)
	for _, family := range addr.Families() {
		if _, repairs := b.Tally(family); repairs != g.repairs[family] {
			g.repairs[family], g.open[family] = repairs, true
		}
		if g.open[family] && !lacking[family] {
			closed[family] = true
			delete(g.open, family)
		}
	}
	return closed
}
