package outcome

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// PutOffError says which ports are put off to the next attempt, which is due at once, so that others do not wait
// for them. Nothing has failed.
type PutOffError struct{ Ports map[desired.PortKey]struct{} }

func (e *PutOffError) Error() string { return "large Services are programmed a portion at a time" }

// PutOff returns the ports that an error of several, joined and wrapped, says are put off; nil if none are.
func PutOff(err error) map[desired.PortKey]struct{} {
	all := AllOf[*PutOffError](err)
	if len(all) == 1 {
		return all[0].Ports
	}
	var ports map[desired.PortKey]struct{}
	for _, each := range all {
		if ports == nil {
			ports = map[desired.PortKey]struct{}{}
		}
		maps.Copy(ports, each.Ports)
	}
	return ports
}

// Portions divides the changes of large Services among several attempts, so that the changes of others wait for one
// portion at most. What all attempts together lead to depends on the wanted state alone.
type Portions struct {
	Most  int // weight of a portion, about that many rows of a table
	later []desired.Change
	last  view.Ref // the large Service that the last portion was of
	waits bool     // the last attempt had no portion
}

// Changes returns what differs from what is held, as desired.Forwarding.Changes, and what is put off. Of the latter, what has
// not changed since is as it was, and is not compared again.
func (p *Portions) Changes(want desired.Forwarding, held map[desired.PortKey]desired.Port, at uint64, scope func(desired.PortKey) bool) []desired.Change {
	changes := want.Changes(held, at, scope)
	changed, known := want.Delta.ChangedSince(at)
	if !known {
		return changes // compared all
	}
	changes = slices.Grow(changes, len(p.later))
	for i := range p.later {
		if _, compared := changed[p.later[i].Key]; !compared {
			changes = append(changes, p.later[i])
		}
	}
	return changes
}

// All puts nothing off.
func (p *Portions) All() { p.later = nil }

// Next returns the changes to be made now, and puts off the others. All of a Service whose changes weigh no more than a portion
// are made at once, in whatever number: of the others one portion, or one port that weighs more, the Services in turn. What is made
// at once waits for no portion if large Services have just changed, or the last attempt had one.
func (p *Portions) Next(changes []desired.Change) []desired.Change {
	waited := p.waits
	p.later, p.waits = nil, false
	weights, all := map[view.Ref]int{}, 0
	for i := range changes {
		w := weight(changes[i])
		weights[changes[i].Key.Service] += w
		all += w
	}
	if all <= p.Most {
		return changes
	}
	var small []desired.Change
	large := make([]desired.Change, 0, len(changes))
	for i := range changes {
		if weights[changes[i].Key.Service] > p.Most {
			large = append(large, changes[i])
		} else {
			small = append(small, changes[i])
		}
	}
	if !waited && len(small) > 0 {
		if now := p.withoutHeirs(small, large); len(now) > 0 {
			p.waits = true
			return now
		}
	}
	portion, later := p.divide(large)
	return append(p.withoutHeirs(small, later), portion...)
}

// divide returns the next portion of what is left of large Services, and the rest. What a Service gets comes before what it
// loses: one port may follow another.
func (p *Portions) divide(large []desired.Change) (portion, later []desired.Change) {
	slices.SortFunc(large, func(a, b desired.Change) int {
		if a.Key.Service == b.Key.Service {
			return inOrder(a, b)
		}
		if had := a.Key.Service.Compare(p.last) <= 0; had != (b.Key.Service.Compare(p.last) <= 0) {
			if had {
				return 1
			}
			return -1
		}
		return a.Key.Service.Compare(b.Key.Service)
	})
	n, room := 0, p.Most
	for n < len(large) && (n == 0 || weight(large[n]) <= room) {
		room -= weight(large[n])
		n++
	}
	if n > 0 {
		p.last = large[n-1].Key.Service
	}
	return large[:n:n], large[n:]
}

// inOrder orders the changes of a Service: neighbours among the ports share chains of a table, which are then written once.
func inOrder(a, b desired.Change) int {
	p, q := a.To, b.To
	if (p == nil) != (q == nil) {
		if p == nil {
			return 1
		}
		return -1
	}
	if p == nil {
		p, q = a.From, b.From
	}
	if p.Port != q.Port {
		return int(p.Port) - int(q.Port)
	}
	return a.Key.Compare(b.Key)
}

// weight is about how many rows of tables a change is about.
func weight(c desired.Change) int {
	most := 0
	for _, p := range []*desired.Port{c.From, c.To} {
		if p == nil {
			continue
		}
		endpoints := len(p.Cluster)
		if p.ExternalLocal || p.InternalLocal {
			endpoints += len(p.Local)
		}
		addresses := 2 + len(p.VIPs) + len(p.ExternalIPs) // the ClusterIP, and perhaps a NodePort
		most = max(most, addresses*(1+endpoints)+len(p.VIPs)*len(p.SourceRanges))
	}
	return most
}

// place is a destination; that of a NodePort has no address.
type place struct {
	netip.AddrPort
	protocol view.Protocol
}

// withoutHeirs puts changes off, and of others those by which a port gets what another one is still to lose, and would keep: it
// would seem to be in place, and not be reached. It returns which are to be made now. Large Services wait for none, so that something
// is written in each pass.
func (p *Portions) withoutHeirs(now, later []desired.Change) []desired.Change {
	p.later = later
	wanted, leaving := wantedBy(now), map[place]desired.Change{}
	for len(later) > 0 && len(now) > 0 {
		for _, c := range later {
			if c.From == nil || c.To != nil && samePlaces(*c.From, *c.To) {
				continue
			}
			for at := range places(c.Key, c.From) {
				if _, is := wanted[at]; is && !has(places(c.Key, c.To), at) {
					leaving[at] = c
				}
			}
		}
		later = nil
		now = slices.DeleteFunc(slices.Clone(now), func(c desired.Change) bool {
			heir := false
			for at := range places(c.Key, c.To) {
				if held, is := leaving[at]; is {
					heir = heir || cmp.Or(held.From.Rank(at.Addr())-c.To.Rank(at.Addr()), held.Key.Compare(c.Key)) < 0
				}
			}
			if heir {
				later = append(later, c)
			}
			return heir
		})
		p.later = append(p.later, later...)
	}
	return now
}

// wantedBy are the destinations that ports have after changes.
func wantedBy(changes []desired.Change) map[place]struct{} {
	wanted := map[place]struct{}{}
	for i := range changes {
		for at := range places(changes[i].Key, changes[i].To) {
			wanted[at] = struct{}{}
		}
	}
	return wanted
}

// places yields the destinations of a port; nil has none.
func places(key desired.PortKey, p *desired.Port) iter.Seq[place] {
	return func(yield func(place) bool) {
		if p == nil {
			return
		}
		for _, some := range [][]netip.Addr{{p.ClusterIP}, p.VIPs, p.ExternalIPs} {
			for _, a := range some {
				if a.IsValid() && !yield(place{netip.AddrPortFrom(a, p.Port), key.Protocol}) {
					return
				}
			}
		}
		if p.NodePort != 0 {
			yield(place{netip.AddrPortFrom(netip.Addr{}, p.NodePort), key.Protocol})
		}
	}
}

func has(all iter.Seq[place], at place) bool {
	for each := range all {
		if each == at {
			return true
		}
	}
	return false
}

func samePlaces(a, b desired.Port) bool {
	return a.ClusterIP == b.ClusterIP && a.Port == b.Port && a.NodePort == b.NodePort && slices.Equal(a.VIPs, b.VIPs) && slices.Equal(a.ExternalIPs, b.ExternalIPs)
}

// Later returns the changes that are put off.
func (p *Portions) Later() []desired.Change { return p.later }

// Err returns a *PutOffError if something is put off.
func (p *Portions) Err() error {
	if len(p.later) == 0 {
		return nil
	}
	ports := make(map[desired.PortKey]struct{}, len(p.later))
	for i := range p.later {
		ports[p.later[i].Key] = struct{}{}
	}
	return &PutOffError{ports}
}
