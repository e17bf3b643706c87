package bfd

import (
	"cmp"
	"time"
)

// Status is what a session is doing.
type Status struct {
	State State     `json:"state"`
	Diag  Diag      `json:"diag,omitempty"` // why it is not Up, as far as is known
	Since time.Time `json:"since"`          // of State
	// Failures counts how often the session went from Up to Down, unless it was by
	// the peer's administrator. It begins at 0 with the process.
	Failures uint64 `json:"failures,omitempty"`
	// Detection is how long the peer may be silent; 0 while it is.
	Detection time.Duration `json:"detection,omitempty"`
	// Trouble says why packets can be neither sent nor received; "" if they can.
	Trouble string `json:"trouble,omitempty"`
}

// Reason says why the session is not Up; "" if nothing is known but that the peer has not been heard.
func (s Status) Reason() string {
	if s.Trouble == "" && s.Diag != NoDiag {
		return s.Diag.String()
	}
	return s.Trouble
}

// Equal compares two by value.
func (s Status) Equal(o Status) bool {
	since := s.Since.Equal(o.Since)
	s.Since, o.Since = time.Time{}, time.Time{}
	return since && s == o
}

// Status tells of every session that is wanted, by name.
func (s *Sessions) Status() map[string]Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]Status, len(s.names))
	for name, k := range s.names {
		have := s.all[k]
		all[name] = Status{
			State: have.machine.state, Diag: have.machine.diag, Since: have.since, Failures: have.machine.failures,
			Detection: have.machine.visible(), Trouble: cmp.Or(have.trouble, s.deaf[kindOf(k)]),
		}
	}
	return all
}
