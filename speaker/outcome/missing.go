package outcome

import (
	"cmp"
	"maps"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// Missing are the ports that are not in the kernel as wanted, each with what the kernel has
// instead; the zero Port stands for nothing. Ports among them that are not wanted should have
// been removed, and have not been.
type Missing map[desired.PortKey]*desired.Port

// Not reports whether a port is in the kernel as wanted.
func (m Missing) Not(key desired.PortKey) bool {
	_, is := m[key]
	return !is
}

// Besides returns the missing ports of all but some families.
func (m Missing) Besides(families map[addr.Family]bool) Missing {
	if len(families) == 0 {
		return m
	}
	others := maps.Clone(m)
	maps.DeleteFunc(others, func(key desired.PortKey, _ *desired.Port) bool { return families[key.Family] })
	return others
}

// Of counts, by family, the ports that are missing of those that are wanted.
func (m Missing) Of(want desired.Forwarding) map[addr.Family]int {
	lacking := map[addr.Family]int{}
	for key := range m {
		if _, wanted := want.Ports[key]; wanted {
			lacking[key.Family]++
		}
	}
	return lacking
}

// Attempt is what a backend tried in one family, and how that went.
type Attempt struct {
	Family  addr.Family
	Want    desired.Forwarding
	Changes []desired.Change
	Later   []desired.Change // those of them that it has put off
	// Held are the ports as they are after it.
	Held map[desired.PortKey]desired.Port
	// Known: the kernel has what is held, but for the changes. Else it is unknown what it has,
	// or others took some of it away.
	Known bool
	// Sound: what is held of the changes is in the kernel. Else it may have failed at any of them.
	Sound bool
}

// Add adds to what is missing what the kernel lacks after an attempt. A transaction that fails leaves
// the kernel as it was, so all ports but those that were to change are in place where it is known.
// Those that are wanted no more it may have as they are held.
func (m Missing) Add(a Attempt) {
	nothing := &desired.Port{}
	if a.Known {
		for i := range a.Later {
			m[a.Later[i].Key] = cmp.Or(a.Later[i].From, nothing)
		}
		for _, c := range a.Changes {
			if _, is := m[c.Key]; is {
				continue
			}
			placed, has := a.Held[c.Key]
			made := c.To == nil && !has || c.To != nil && has && a.Sound && placed.Equal(*c.To)
			if !made {
				m[c.Key] = new(placed)
			}
		}
		return
	}
	for key := range a.Want.Ports {
		if key.Family == a.Family {
			m[key] = nothing
		}
	}
	for key, placed := range a.Held {
		if _, wanted := a.Want.Ports[key]; !wanted {
			m[key] = new(placed)
		}
	}
}
