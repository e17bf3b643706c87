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

// Attempt is what a backend tried in one family, and how that went.
type Attempt struct {
	Family  addr.Family
	Want    Forwarding
	Changes []Change
	// Held are the ports as they are after it.
	Held map[PortKey]Port
	// Known: the kernel has what is held, but for the changes. Else nobody knows what it has,
	// or others took some of it away.
	Known bool
	// Sound: what is held of the changes is in the kernel. Else it may have failed at any of them.
	Sound bool
}

// Add adds to what is missing what the kernel lacks after an attempt. A transaction that fails leaves
// the kernel as it was, so all ports but those that were to change are in place where it is known.
// Those that are wanted no more it may have as they are held.
func (m Missing) Add(a Attempt) {
	if a.Known {
		m.addFailed(a)
		return
	}
	for key := range a.Want.Ports {
		if key.Family == a.Family {
			m[key] = Port{}
		}
	}
	for key, placed := range a.Held {
		if _, wanted := a.Want.Ports[key]; !wanted {
			m[key] = placed
		}
	}
}

// addFailed adds the changes that were not made.
func (m Missing) addFailed(a Attempt) {
	for _, c := range a.Changes {
		placed, has := a.Held[c.Key]
		made := c.To == nil && !has || c.To != nil && has && a.Sound && placed.Equal(*c.To)
		if !made {
			m[c.Key] = placed
		}
	}
}
