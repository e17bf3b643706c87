package outcome

import (
	"cmp"
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
	later map[desired.PortKey]struct{}
	last  view.Ref // the large Service that the last portion was of
	wrote bool     // the last attempt had a portion
}

// Changes returns what differs from what is held, as desired.Forwarding.Changes, and what is put off.
func (p *Portions) Changes(want desired.Forwarding, held map[desired.PortKey]desired.Port, at uint64, scope func(desired.PortKey) bool) []desired.Change {
	return want.Changes(held, at, scope, slices.Collect(maps.Keys(p.later))...)
}

// All puts nothing off.
func (p *Portions) All() { p.later = nil }

// Next returns the changes to be made now, and puts off the others. All of a Service whose changes weigh no more than a portion
// are made at once, in whatever number: of the others one portion, or one port that weighs more, the Services in turn. What is made
// at once has waited for a portion if the last attempt had one, and does not wait for another.
func (p *Portions) Next(changes []desired.Change) []desired.Change {
	p.later = nil
	weights, all := map[view.Ref]int{}, 0
	for i := range changes {
		w := weight(changes[i])
		weights[changes[i].Key.Service] += w
		all += w
	}
	if all <= p.Most {
		p.wrote = false
		return changes
	}
	large := map[view.Ref][]desired.Change{}
	var small []desired.Change
	for _, c := range changes {
		if service := c.Key.Service; weights[service] > p.Most {
			large[service] = append(large[service], c)
		} else {
			small = append(small, c)
		}
	}
	if p.wrote && len(small) > 0 {
		if now := p.putOff(small, slices.Concat(slices.Collect(maps.Values(large))...)); len(now) > 0 {
			p.wrote = false
			return now
		}
	}
	portion, later := p.divide(large)
	p.wrote = len(portion) > 0
	return append(p.putOff(small, later), portion...)
}

// putOff puts changes off, and returns which of others are to be made now.
func (p *Portions) putOff(now, later []desired.Change) []desired.Change {
	p.later = make(map[desired.PortKey]struct{}, len(later))
	for i := range later {
		p.later[later[i].Key] = struct{}{}
	}
	return p.withoutHeirs(now, later)
}

// divide returns the next portion of what is left of large Services, and the rest. What a Service gets comes before what it
// loses: one port may follow another.
func (p *Portions) divide(large map[view.Ref][]desired.Change) (portion, later []desired.Change) {
	turns := slices.SortedFunc(maps.Keys(large), view.Ref.Compare)
	next, _ := slices.BinarySearchFunc(turns, p.last, func(a, b view.Ref) int {
		if a.Compare(b) <= 0 {
			return -1
		}
		return 1
	})
	room := p.Most
	for _, service := range slices.Concat(turns[next:], turns[:next]) {
		slices.SortStableFunc(large[service], func(a, b desired.Change) int { return goes(a) - goes(b) })
		for _, c := range large[service] {
			if w := weight(c); w <= room || len(portion) == 0 {
				room -= w
				portion, p.last = append(portion, c), service
			} else {
				room = 0
				later = append(later, c)
			}
		}
	}
	return portion, later
}

func goes(c desired.Change) int {
	if c.To == nil {
		return 1
	}
	return 0
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

// withoutHeirs puts off also the changes by which a port gets what another one is still to lose, and would keep: it would seem
// to be in place, and not be reached. Large Services wait for none, so that something is written in each pass.
func (p *Portions) withoutHeirs(now, later []desired.Change) []desired.Change {
	leaving := map[place]desired.Change{}
	for len(later) > 0 && len(now) > 0 {
		for _, c := range later {
			if c.From == nil || c.To != nil && samePlaces(*c.From, *c.To) {
				continue
			}
			stays := places(c.Key, c.To)
			for at := range places(c.Key, c.From) {
				if _, kept := stays[at]; !kept {
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
				p.later[c.Key] = struct{}{}
				later = append(later, c)
			}
			return heir
		})
	}
	return now
}

func places(key desired.PortKey, p *desired.Port) map[place]struct{} {
	all := map[place]struct{}{}
	if p == nil {
		return all
	}
	for _, a := range slices.Concat([]netip.Addr{p.ClusterIP}, p.VIPs, p.ExternalIPs) {
		if a.IsValid() {
			all[place{netip.AddrPortFrom(a, p.Port), key.Protocol}] = struct{}{}
		}
	}
	if p.NodePort != 0 {
		all[place{netip.AddrPortFrom(netip.Addr{}, p.NodePort), key.Protocol}] = struct{}{}
	}
	return all
}

func samePlaces(a, b desired.Port) bool {
	return a.ClusterIP == b.ClusterIP && a.Port == b.Port && a.NodePort == b.NodePort && slices.Equal(a.VIPs, b.VIPs) && slices.Equal(a.ExternalIPs, b.ExternalIPs)
}

// Err returns a *PutOffError if something is put off.
func (p *Portions) Err() error {
	if len(p.later) == 0 {
		return nil
	}
	return &PutOffError{p.later}
}
