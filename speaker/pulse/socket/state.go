package socket

import (
	"fmt"
	"net/netip"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// stateMessage is how a state differs from the one before it on the connection. Number is that of the table which the
// state follows from; 0 while no table came over the connection.
type stateMessage struct {
	Number    uint64
	Rest      *api.State            `json:",omitempty"` // all but what follows; nil: as before
	Owned     change[api.Ownership] `json:",omitzero"`
	Left      change[string]        `json:",omitzero"`
	Contested change[api.Contest]   `json:",omitzero"`
	Doubted   change[api.Doubt]     `json:",omitzero"`
}

// stateChange returns how a state differs from the one before it.
func stateChange(number uint64, before, now *api.State) stateMessage {
	m := stateMessage{
		Number:    number,
		Owned:     changeOf(before.Owned, now.Owned, api.Ownership.Equal),
		Left:      changeOf(before.Left, now.Left, func(a, b string) bool { return a == b }),
		Contested: changeOf(before.Contested, now.Contested, api.Contest.Equal),
		Doubted:   changeOf(before.Doubted, now.Doubted, api.Doubt.Equal),
	}
	if rest := restOfState(*now); !rest.Equal(restOfState(*before)) {
		m.Rest = &rest
	}
	return m
}

func restOfState(s api.State) api.State {
	s.Owned, s.Left, s.Contested, s.Doubted = nil, nil, nil, nil
	return s
}

func (m stateMessage) none() bool {
	return m.Rest == nil && m.Owned.none() && m.Left.none() && m.Contested.none() && m.Doubted.none()
}

// after returns the state after the change. It returns an error for a change of another state than the one before.
func (m stateMessage) after(before api.State) (api.State, error) {
	now := before
	if m.Rest != nil {
		now = *m.Rest
	}
	for over, a := range now.Adjacent {
		if err := checkAdjacency(over, a); err != nil {
			return now, err
		}
	}
	var err error
	if now.Owned, err = m.Owned.after(before.Owned); err != nil {
		return now, fmt.Errorf("owned: %w", err)
	}
	if now.Left, err = m.Left.after(before.Left); err != nil {
		return now, fmt.Errorf("left: %w", err)
	}
	if now.Contested, err = m.Contested.after(before.Contested); err != nil {
		return now, fmt.Errorf("contested: %w", err)
	}
	if now.Doubted, err = m.Doubted.after(before.Doubted); err != nil {
		return now, fmt.Errorf("doubted: %w", err)
	}
	return now, nil
}

// checkAdjacency returns an error for what is no adjacency over the interface.
func checkAdjacency(over string, a view.Adjacency) error {
	for _, address := range []netip.Addr{a.Local, a.Router} {
		if address.IsValid() && (!address.Is6() || !address.IsLinkLocalUnicast() || address.Zone() != over) {
			return fmt.Errorf("adjacency over %s with the address %v", over, address)
		}
	}
	if a.Router.IsValid() && !a.Local.IsValid() {
		return fmt.Errorf("adjacency over %s with %v from no address", over, a.Router)
	}
	return nil
}
