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

// After returns the adjacency that a newer report makes of this one. A listener that has just started has
// heard no router yet: the router stays as long as the interface does.
func (a Adjacency) After(report Adjacency) Adjacency {
	if !report.Router.IsValid() && report.Local.IsValid() && report.Local == a.Local {
		report.Router = a.Router
	}
	return report
}
