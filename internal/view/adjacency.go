package view

import "net/netip"

// Adjacency is the router at the other end of one of this node's interfaces. Addresses are
// link-local ones with the interface as zone. It is comparable.
type Adjacency struct {
	Local  netip.Addr // this node's; invalid: the interface is of no use now
	Router netip.Addr // invalid: none has been heard
	// Trouble says why the interface is of no use; empty where Local is valid.
	Trouble string
}

// After is the adjacency that a newer word makes of this one. Who begins to listen anew has
// heard nobody yet: the router stays as long as the interface does.
func (a Adjacency) After(word Adjacency) Adjacency {
	if !word.Router.IsValid() && word.Local.IsValid() && word.Local == a.Local {
		word.Router = a.Router
	}
	return word
}
