package nftables

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conflicts"
)

// model is what one family's table is to hold, by the port that wants it. It keeps no list of
// elements: those of a port follow from the port, and only what several ports may want
// is counted.
type model struct {
	*layout
	ports       map[desired.PortKey]desired.Port
	assignments map[desired.PortKey]*slotAssignment
	ids         *ids

	precedence conflicts.Destinations[destination, struct{}]
	servers    map[server]int32
	addresses  map[item]int32 // of serviceIPs and pinged
	chains     map[string]*used
	nodeSets   nodeSets
}

type used struct {
	chain element
	rules chain
	by    int
}

func newModel(l *layout) *model {
	return &model{
		layout: l, ports: map[desired.PortKey]desired.Port{}, assignments: map[desired.PortKey]*slotAssignment{},
		ids: newIDs(), servers: map[server]int32{}, addresses: map[item]int32{}, chains: map[string]*used{},
	}
}

// step replaces one version of a port by another; nil stands for nothing.
type step struct {
	key      desired.PortKey
	from, to *version
}

func (s step) reverse() step { return step{s.key, s.to, s.from} }

// sizeOf is about how many elements steps change.
func sizeOf(steps []step) (n int) {
	for _, s := range steps {
		for _, v := range []*version{s.from, s.to} {
			if v != nil {
				p := v.port
				n += (len(p.Cluster) + len(p.Local)) * (2 + len(p.VIPs) + len(p.ExternalIPs))
			}
		}
	}
	return n
}

// step prepares a change. It errs if no kernel could make it.
func (l *model) step(c desired.Change) (step, error) {
	s := step{key: c.Key}
	if p, has := l.ports[c.Key]; has {
		s.from = &version{p, l.assignments[c.Key]}
	}
	if c.To == nil {
		return s, nil
	}
	s.to = &version{port: *c.To}
	if err := l.check(c.Key, *c.To); err != nil {
		return s, err
	}
	if c.To.Affinity <= 0 {
		return s, nil
	}
	before := l.assignments[c.Key]
	if before == nil {
		var err error
		if before, err = l.ids.begin(c.Key, l.leading(c.Key, *c.To)); err != nil {
			return s, err
		}
	}
	s.to.assignment = before.next(slices.Concat(c.To.Cluster, c.To.Local))
	return s, nil
}

// leading are the elements that tell the id of a port. An address that is an ExternalIP alone may
// have been another port's, as that served, whose clients this one would take over.
func (l *model) leading(key desired.PortKey, p desired.Port) []item {
	var all []item
	for _, h := range l.render(key, version{port: p}).held {
		if h.rank < desired.RankExternalIP {
			all = append(all, item{h.at.matchKind().of(affinityPorts), h.at.key()})
		}
	}
	return all
}

// take makes a step and adds to the delta what it changes in the kernel.
func (l *model) take(s step, d delta) {
	if s.from != nil {
		l.withdraw(s.key, *s.from, d)
		delete(l.ports, s.key)
		delete(l.assignments, s.key)
	}
	if s.to != nil {
		l.assert(s.key, *s.to, d)
		l.ports[s.key] = s.to.port
		if s.to.assignment != nil {
			l.assignments[s.key] = s.to.assignment
		}
	}
}

func (l *model) withdraw(key desired.PortKey, v version, d delta) {
	r := l.render(key, v)
	for _, h := range r.held {
		holder, held := l.precedence.Winner(h.at)
		l.precedence.Release(h.at, key)
		if !held || holder.Key != key {
			continue
		}
		d.remove(h.elements...)
		if next, ok := l.precedence.Winner(h.at); ok {
			d.add(next.Key, l.holding(next.Key, h.at)...)
		}
	}
	d.remove(r.affinityEndpoints...)
	for _, s := range r.servers {
		if l.servers[s]--; l.servers[s] == 0 {
			delete(l.servers, s)
			d.remove(s.element())
		}
	}
	for _, a := range r.addresses {
		if l.addresses[a]--; l.addresses[a] == 0 {
			delete(l.addresses, a)
			d.remove(element{item: a})
		}
	}
	for _, c := range r.chains {
		if u := l.chains[c.Name]; u.by == 1 {
			delete(l.chains, c.Name)
			d.remove(u.chain)
		} else {
			u.by--
		}
	}
}

func (l *model) assert(key desired.PortKey, v version, d delta) {
	r := l.render(key, v)
	for _, c := range r.chains {
		u := l.chains[c.Name]
		if u == nil {
			u = &used{chain: l.element(c), rules: c}
			l.chains[c.Name] = u
			d.add(key, u.chain)
		}
		u.by++
	}
	for _, h := range r.held {
		before, held := l.precedence.Winner(h.at)
		l.precedence.Set(h.at, conflicts.Candidate[struct{}]{Key: key, Rank: h.rank})
		if now, _ := l.precedence.Winner(h.at); now.Key != key {
			continue
		}
		if held {
			d.remove(l.holding(before.Key, h.at)...)
		}
		d.add(key, h.elements...)
	}
	d.add(key, r.affinityEndpoints...)
	for _, s := range r.servers {
		if l.servers[s]++; l.servers[s] == 1 {
			d.add(key, s.element())
		}
	}
	for _, a := range r.addresses {
		if l.addresses[a]++; l.addresses[a] == 1 {
			d.add(key, element{item: a})
		}
	}
}

// holding is what a port that is there has at a destination.
func (l *model) holding(key desired.PortKey, at destination) []element {
	for _, h := range l.render(key, version{l.ports[key], l.assignments[key]}).held {
		if h.at == at {
			return h.elements
		}
	}
	return nil
}

// nodeSets are where pods send from, or may while that is not known, where NodePorts answer,
// where ClusterIPs are from and where VIPs, what answers pings, what is masqueraded with which source, and the guard of
// loopback addresses if there is to be one.
type nodeSets [8][]element

const guardAt = 7

func (s nodeSets) equal(o nodeSets) bool { return slices.EqualFunc(s[:], o[:], slices.Equal) }

func (l *model) nodeSetsOf(want desired.Forwarding) nodeSets {
	var unknown, guard []element
	if !want.PodsKnown(l.Family) {
		unknown = intervals(perhapsPods, addr.WithoutLoopback([]netip.Prefix{l.Family.Everything()}))
	}
	if want.Guard && l.Family == addr.IPv4 {
		guard = []element{l.element(l.guard())}
	}
	return nodeSets{
		intervals(pods, l.mine(want.Pods)),
		unknown,
		intervals(nodes, l.mine(slices.Concat(addr.WithoutLoopback(want.NodePorts), want.Loopback))),
		intervals(serviceRanges, l.mine(want.ServiceRanges)),
		intervals(refusedRanges, l.mine(want.Refused)),
		l.echoes(want.Echo),
		l.sourcesOf(want.Sources),
		guardAt: guard,
	}
}

// echoes is what the map of pings has: an address of this node, or nothing.
func (l *model) echoes(by []netip.Addr) []element {
	icmp := byte(unix.IPPROTO_ICMP)
	if l.Family == addr.IPv6 {
		icmp = unix.IPPROTO_ICMPV6
	}
	for _, a := range by {
		if l.owns(a) {
			return []element{{item{echo, string([]byte{icmp})}, string(a.AsSlice())}}
		}
	}
	return nil
}

// sourcesOf is the map of source addresses. What is not in it is masqueraded.
func (l *model) sourcesOf(all []desired.Source) []element {
	var longer []netip.Prefix
	var elements []element
	for _, s := range all {
		if !l.owns(s.To.Addr()) {
			continue
		}
		if s.From.IsValid() {
			for _, e := range intervals(sources, addr.Summarize([]netip.Prefix{s.To}, longer...)) {
				e.value += string(s.From.AsSlice())
				elements = append(elements, e)
			}
		}
		longer = append(longer, s.To)
	}
	return elements
}

// move exchanges the sets of the node and returns the earlier ones.
func (l *model) move(to nodeSets, d delta) (from nodeSets) {
	from = l.nodeSets
	for i := range to {
		d.exchange(from[i], to[i])
	}
	l.nodeSets = to
	return from
}

func (l *model) mine(prefixes []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool {
		return !p.IsValid() || addr.FamilyOf(p.Addr()) != l.Family
	})
}

func (l *model) fill(d delta) {
	for _, c := range l.static() {
		d.add(desired.PortKey{}, l.element(c))
	}
	for _, u := range l.chains {
		d.add(desired.PortKey{}, u.chain)
	}
	d.add(desired.PortKey{}, slices.Concat(l.nodeSets[:]...)...)
	for key, p := range l.ports {
		r := l.render(key, version{p, l.assignments[key]})
		for _, h := range r.held {
			if holder, _ := l.precedence.Winner(h.at); holder.Key == key {
				d.add(key, h.elements...)
			}
		}
		d.add(key, r.affinityEndpoints...)
	}
	for s := range l.servers {
		d.add(desired.PortKey{}, s.element())
	}
	for a := range l.addresses {
		d.add(desired.PortKey{}, element{item: a})
	}
}
