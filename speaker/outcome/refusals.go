package outcome

import (
	"errors"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
)

// Refusals are the ports that the kernel did not take when they were tried last. The zero value
// has none.
type Refusals struct {
	of    map[desired.PortKey]refusal
	tried time.Time
}

// refusal is a port as it was refused, and why.
type refusal struct {
	port desired.Port
	err  error
}

// tryAgainAfter is how long a refused port is left alone while others change. Each attempt
// costs several times what a change does.
const tryAgainAfter = 10 * time.Second

// Add notes that the kernel refuses a port, and is the error that says so.
func (r *Refusals) Add(key desired.PortKey, port desired.Port, reason error) error {
	if r.of == nil {
		r.of = map[desired.PortKey]refusal{}
	}
	r.of[key] = refusal{port, reason}
	return &RefusedError{Key: key, Err: reason}
}

// Part takes the changes apart that were refused: those to be tried again now are forgotten, and tried by
// themselves delay no other. While others are fresh they are left alone for a while, and told
// again: the error joins a *RefusedError for each.
func (r *Refusals) Part(changes []desired.Change, now time.Time) (fresh, again []desired.Change, told error) {
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
