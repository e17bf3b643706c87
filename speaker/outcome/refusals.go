package outcome

import (
	"errors"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// Refusals are the ports that the kernel did not take when they were tried last. The zero value
// has none.
type Refusals struct {
	of       map[desired.PortKey]refusal
	services map[view.Ref]int // how many are of each
	tried    time.Time
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
		r.of, r.services = map[desired.PortKey]refusal{}, map[view.Ref]int{}
	}
	r.of[key] = refusal{port, reason}
	r.services[key.Service]++
	return &RefusedError{Key: key, Err: reason}
}

// fewRefused is how many ports of one Service are found out by attempts of their own. All others are then refused for what they
// were refused for together: thousands of attempts would hold up other Services.
const fewRefused = 8

// Like refuses a port untried, for the reason for which it was refused with others, if that many of its Service were refused, and is
// the error that says so; nil: it is to be tried.
func (r *Refusals) Like(key desired.PortKey, port *desired.Port, reason error) error {
	if port == nil || r.services[key.Service] < fewRefused {
		return nil
	}
	return r.Add(key, *port, reason)
}

// Part takes the changes apart that were refused: those to be tried again now are forgotten, and tried by
// themselves delay no other. While others are fresh they are left alone for a while, and told
// again: the error joins a *RefusedError for each.
func (r *Refusals) Part(changes []desired.Change, now time.Time) (fresh, again []desired.Change, told error) {
	if len(r.of) == 0 {
		r.tried = now
		return changes, nil, nil
	}
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
