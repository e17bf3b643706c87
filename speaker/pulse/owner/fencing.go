package owner

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

const (
	// questions are asked, so far apart: an answer takes a millisecond on most networks, and
	// what no station has answered for a detection time (by default) is not there.
	questions     = 4
	questionEvery = 25 * time.Millisecond
	// askAgain is how often it is asked again while most of the mesh is missing, and
	// askSeldom how often once that has lasted for mournFor.
	askAgain  = time.Second
	askSeldom = 10 * time.Second
	// mournFor is for how long nodes that fell silent are missed. They count as gone for
	// good then, so that the nodes which are left are the mesh.
	mournFor = 10 * time.Second
	// maxWitnesses bounds the nodes that are asked beside the gateways.
	maxWitnesses = 8
)

// fencingState is where this node stands in the mesh.
type fencingState uint8

const (
	together  fencingState = iota // it hears most of the mesh
	asking                        // it does not since a moment ago, and asks why
	vouched                       // something on the network answers it
	unvouched                     // nothing does, and it has no gateway that would
	cutOff                        // its gateway does not answer
)

// probeTarget is an address that is asked for, to know whether the network hears this node.
type probeTarget struct {
	address, from netip.Addr
	link          int // index of the interface
	gateway       bool
}

// fencing finds out whether it is this node that is cut off when most of the mesh falls
// silent. It asks nothing while the mesh is there. Then it asks, for the time of a blink,
// its gateways, and the nodes that are silent, which may be there and not be heard all the
// same. Anything that answers proves that this node hears and is heard. Where a gateway is
// known and nothing answers, this node is cut off, and answers for nothing: the others have
// taken over, or will. Where none is known, silence proves nothing, and it goes on.
//
// Machine calls due when next says so, and then update.
type fencing struct {
	mesh map[string]time.Time // other nodes that were alive lately, and since when they are silent

	is, was   fencingState // now, and at the last decision
	witnesses []probeTarget
	round     bool // questions are being asked
	asked     int
	at        time.Time // when the next question is due, or the verdict, or the next round; zero: never
}

// update takes in which nodes are alive. find tells what to ask for.
func (i *fencing) update(now time.Time, self string, v hello.View, find func() []probeTarget) {
	if !v.Settled {
		*i = fencing{}
		return
	}
	fresh := i.count(now, self, v)
	switch {
	case !i.lost():
		i.is, i.witnesses, i.round, i.at = together, nil, false, i.mourned()
	case !i.round && (i.is == together || fresh || !now.Before(i.at)):
		if i.is != cutOff && (fresh || i.is == together) {
			i.is = asking
		}
		i.witnesses, i.round, i.asked, i.at = find(), true, 0, now
		if len(i.witnesses) == 0 {
			i.conclude(now)
		}
	}
}

// count notes which nodes are silent since now, and tells whether any is. One that is missed long enough
// is forgotten, unless no other is left or this node is cut off: then they may not be
// gone.
func (i *fencing) count(now time.Time, self string, v hello.View) (fresh bool) {
	if i.mesh == nil {
		i.mesh = map[string]time.Time{}
	}
	for node, since := range i.mesh {
		_, alive := v.Alive[node]
		silent := slices.Contains(v.Silent, node)
		switch {
		case !alive && !silent: // it has left
			delete(i.mesh, node)
		case silent && since.IsZero():
			i.mesh[node], fresh = now, true
		}
	}
	alive := 0
	for node, m := range v.Alive {
		if m.Heard && node != self {
			i.mesh[node] = time.Time{}
			alive++
		}
	}
	if alive > 0 && i.is != cutOff && i.is != asking {
		maps.DeleteFunc(i.mesh, func(_ string, since time.Time) bool { return gone(now, since) })
	}
	return fresh
}

func gone(now, since time.Time) bool { return !since.IsZero() && !now.Before(since.Add(mournFor)) }

// lost tells whether no more than half of the mesh is heard, this node included.
func (i *fencing) lost() bool {
	silent := 0
	for _, since := range i.mesh {
		if !since.IsZero() {
			silent++
		}
	}
	return silent > 0 && 2*silent >= len(i.mesh)+1
}

// mourned is when the next silent node is forgotten; zero: there is none.
func (i *fencing) mourned() time.Time {
	var next time.Time
	for _, since := range i.mesh {
		if !since.IsZero() {
			next = sooner(next, since.Add(mournFor))
		}
	}
	return next
}

// long tells whether all that are silent have been so for long.
func (i *fencing) long(now time.Time) bool {
	for _, since := range i.mesh {
		if !since.IsZero() && !gone(now, since) {
			return false
		}
	}
	return true
}

// due returns the questions to be asked now, and whether it is time for an update.
func (i *fencing) due(now time.Time) (ask []probeTarget, news bool) {
	switch {
	case i.at.IsZero() || now.Before(i.at):
		return nil, false
	case !i.round:
		return nil, true
	case i.asked == questions:
		i.conclude(now)
		return nil, true
	}
	i.asked, i.at = i.asked+1, now.Add(questionEvery)
	return i.witnesses, false
}

// conclude ends a round in which nothing answered.
func (i *fencing) conclude(now time.Time) {
	gateway := slices.ContainsFunc(i.witnesses, func(w probeTarget) bool { return w.gateway })
	switch {
	case i.is == cutOff:
	case gateway && !i.long(now):
		i.is = cutOff
	default: // the last one that is left does not stop because a router is restarted
		i.is = unvouched
	}
	i.rest(now)
}

func (i *fencing) rest(now time.Time) {
	i.round, i.at = false, now.Add(askAgain)
	if i.is != cutOff && i.long(now) {
		i.at = now.Add(askSeldom)
	}
}

// under are the addresses whose stations are listened for, by interface.
func (i *fencing) under() []probeTarget {
	if i.round || i.is == cutOff {
		return i.witnesses
	}
	return nil
}

// claimed takes in which station has an address; it tells whether that was asked for, and whether it is
// news that something answers.
func (i *fencing) claimed(now time.Time, claim neighbour.Claim) (mine, news bool) {
	if !slices.ContainsFunc(i.under(), func(w probeTarget) bool { return w.address == claim.Address && w.link == claim.Index }) {
		return false, false
	}
	if claim.Probe {
		return true, false
	}
	news = i.is != vouched
	i.is = vouched
	i.rest(now)
	return true, news
}

// next is when there is something to do; zero: never.
func (i *fencing) next() time.Time { return i.at }

// waits tells whether this node may be cut off, and had better not take over from others yet.
func (i *fencing) waits() bool {
	return i.is == asking && slices.ContainsFunc(i.witnesses, func(w probeTarget) bool { return w.gateway })
}

// mute are the gateways that do not answer while this node is cut off, sorted.
func (i *fencing) mute() []netip.Addr {
	if i.is != cutOff {
		return nil
	}
	gateways := []netip.Addr{}
	for _, w := range i.witnesses {
		if w.gateway {
			gateways = append(gateways, w.address)
		}
	}
	slices.SortFunc(gateways, netip.Addr.Compare)
	return slices.Compact(gateways)
}

// questionFor is how an address is asked for on a link; none where this node has no address to ask from.
func questionFor(a netip.Addr, l links.Link, gateway bool) []probeTarget {
	from := l.Own(a)
	if !from.IsValid() {
		return nil
	}
	return []probeTarget{{address: a, from: from, link: l.Index, gateway: gateway}}
}

// gateways are those that can be asked for.
func (on networks) gateways(all []links.Gateway) []probeTarget {
	var found []probeTarget
	for _, g := range all {
		for _, l := range on[addr.FamilyOf(g.Address)] {
			if l.Index == g.Link {
				found = append(found, questionFor(g.Address, l, true)...)
			}
		}
	}
	return found
}

// witnesses are those of a node's addresses that can be asked for.
func (on networks) witnesses(addresses []netip.Addr) []probeTarget {
	var found []probeTarget
	for _, a := range addresses {
		a = a.Unmap()
		for _, l := range links.Holding(a, on[addr.FamilyOf(a)]) {
			found = append(found, questionFor(a, l, false)...)
		}
	}
	return found
}

// witnesses are the gateways and silent nodes on the networks that are answered on.
func witnesses(t *api.Table, v hello.View, r reach, gateways []links.Gateway) []probeTarget {
	on := r.networks()
	found := on.gateways(gateways)
	for _, node := range v.Silent[:min(len(v.Silent), maxWitnesses)] {
		found = append(found, on.witnesses(t.Peers[node].Addrs)...)
	}
	return found
}

// fence finds out whether this node is cut off, and what the others are to be told of that.
func (m *Machine) fence(now time.Time, r reach) {
	v, before := m.in.View, m.fencing.was
	m.fencing.update(now, m.node, v, func() []probeTarget { return witnesses(m.table, v, r, m.in.Gateways) })
	if vouched := m.fencing.is == vouched; vouched != m.told.vouched {
		m.told.vouched, m.told.stale = vouched, true
	}
	m.fencing.was = m.fencing.is
	switch is := m.fencing.is; {
	case is == before:
	case is == cutOff:
		m.warn("this node hears no more than half of the nodes, and its gateway does not answer: it is cut off, and answers for nothing until either is heard",
			"gateways", m.fencing.mute(), "silent", v.Silent)
	case before == cutOff:
		m.listening.begin(now, true)
		m.info("this node is cut off no more")
	case is == vouched:
		m.info("this node hears no more than half of the nodes; since the network answers it, it goes on", "silent", v.Silent)
	case is == unvouched:
		m.warn("this node hears no more than half of the nodes, and has no gateway on the networks that it answers on to find out why; it goes on", "silent", v.Silent)
	}
}
