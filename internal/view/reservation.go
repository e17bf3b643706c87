package view

import (
	"net/netip"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
)

// Reservation is an IPReservation: addresses that are held for a namespace, whether or
// not a Service of it has them.
type Reservation struct {
	Ref
	Created time.Time
	// Addresses are those to hold, no duplicates; none: Count of each of Families.
	Addresses []netip.Addr
	Count     int
	Families  []addr.Family
	Pool      string // the name of the pool to take them from; "": any
	// Held are the addresses in its status.
	Held []netip.Addr
	// Deleting: the object has a deletion timestamp.
	Deleting bool
	// Invalid says what of the spec cannot be read: it gets nothing new then, and loses
	// nothing.
	Invalid *problem.Problem
	// Stray tells of annotations and labels that only Services ask by; nil for none.
	Stray *problem.Problem
}

// Object is the reservation as problems name it.
func (r *Reservation) Object() problem.Object {
	return problem.Object{Kind: "IPReservation", Namespace: r.Namespace, Name: r.Name}
}
