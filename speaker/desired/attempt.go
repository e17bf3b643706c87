package desired

import (
	"errors"
	"time"

	"fairlead.dev/fairlead/internal/addr"
)

// Refusals are the ports that the kernel did not take when they were tried last. The zero value
// has none.
type Refusals struct {
	of    map[PortKey]refusal
	tried time.Time
}

// refusal is a port as it was refused, and why.
type refusal struct {
	port Port
	err  error
}

// tryAgainAfter is how long a refused port is left alone while others change. Each attempt
// costs several times what a change does.
const tryAgainAfter = 10 * time.Second

// Add notes that the kernel refuses a port, and is the error that says so.
func (r *Refusals) Add(key PortKey, port Port, reason error) error {
	if r.of == nil {
		r.of = map[PortKey]refusal{}
	}
	r.of[key] = refusal{port, reason}
	return &RefusedError{Key: key, Err: reason}
}

// Part takes the changes apart that were refused: those to be tried again now are forgotten, and tried by
// themselves hold nobody up. While others are fresh they are left alone for a while, and told again.
func (r *Refusals) Part(changes []Change, now time.Time) (fresh, again []Change, told error) {
	still := Refusals{tried: r.tried}
	var errs []error
	for _, c := range changes {
		was, refused := r.of[c.Key]
		if !refused || c.To == nil || !was.port.Equal(*c.To) {
			fresh = append(fresh, c)
			continue
		}
		again = append(again, c)
		errs = append(errs, still.Add(c.Key, was.port, was.err))
	}
	if len(fresh) > 0 && len(again) > 0 && now.Sub(r.tried) < tryAgainAfter {
		*r = still
		return fresh, nil, errors.Join(errs...)
	}
	*r = Refusals{tried: now}
	return fresh, again, nil
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
