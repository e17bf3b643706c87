package forwarding

import (
	"hash/maphash"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

// newDestinations tells when a port gets destinations that it had not. What clients sent there
// before went past it.
type newDestinations struct {
	seed    maphash.Seed
	digests map[desired.PortKey]uint64 // of the destinations, which would take more room
}

func destinationsSoFar() newDestinations {
	return newDestinations{maphash.MakeSeed(), map[desired.PortKey]uint64{}}
}

// take takes in what a port is now, and tells whether it has other destinations than
// before.
func (a newDestinations) take(key desired.PortKey, p desired.Port, wanted bool) bool {
	if !wanted {
		delete(a.digests, key)
		return false
	}
	var now uint64 // whatever their order
	for at := range destinations(key, p) {
		now += maphash.Comparable(a.seed, at)
	}
	before, had := a.digests[key]
	a.digests[key] = now
	return !had || before != now
}

// takesAway reports whether a port lacks a destination or an endpoint that it had.
func takesAway(key desired.PortKey, from, to desired.Port) bool {
	lacks := func(e netip.AddrPort) bool { return !slices.Contains(to.Serving, e) }
	if slices.ContainsFunc(from.Serving, lacks) {
		return true
	}
	now := slices.Collect(destinations(key, to))
	for at := range destinations(key, from) {
		if !slices.Contains(now, at) {
			return true
		}
	}
	return false
}

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
