package desired

import "fairlead.dev/fairlead/internal/addr"

// Refusals are ports, as the kernel did not take them when they were tried last.
type Refusals map[PortKey]Port

// Part takes the changes apart that were refused, and forgets that they were: tried by themselves,
// they hold nobody up.
func (r Refusals) Part(changes []Change) (fresh, again []Change) {
	for _, c := range changes {
		if port, refused := r[c.Key]; refused && c.To != nil && port.Equal(*c.To) {
			again = append(again, c)
		} else {
			fresh = append(fresh, c)
		}
	}
	clear(r)
	return fresh, again
}

// AddAll adds all ports of a family, of which nobody knows whether the kernel has them. Those that
// are wanted no more it may have as they are held.
func (m Missing) AddAll(f Forwarding, held map[PortKey]Port, family addr.Family) {
	for key := range f.Ports {
		if key.Family == family {
			m[key] = Port{}
		}
	}
	for key, placed := range held {
		if _, wanted := f.Ports[key]; !wanted {
			m[key] = placed
		}
	}
}

// AddFailed adds the changes that an attempt did not make, by what is held after it. One that is
// not sound may have failed at any of them.
func (m Missing) AddFailed(changes []Change, held map[PortKey]Port, sound bool) {
	for _, c := range changes {
		placed, has := held[c.Key]
		made := c.To == nil && !has || c.To != nil && has && sound && placed.Equal(*c.To)
		if !made {
			m[c.Key] = placed
		}
	}
}
