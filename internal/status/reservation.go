package status

import (
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

const messageReserved = "the reservation holds the addresses that it asks for"

// maxUsers is how many Services on one address a status lists.
const maxUsers = 16

// Booking is what there is to say of an IPReservation beside its addresses.
type Booking struct {
	// Invalid says what of the spec cannot be read.
	Invalid *problem.Problem
	// Users are the Services on reserved addresses, sorted, those of others too.
	Users map[netip.Addr][]view.Ref
}

// Reservation renders the outcome into the status of an IPReservation: the addresses, who
// uses them, and the conditions Allocated and Ready. now is the time of a transition. The
// result equals the status when there is nothing to change.
func Reservation(r *v1beta1.IPReservation, a Allocation, b Booking, now metav1.Time) *v1beta1.IPReservationStatus {
	next := &v1beta1.IPReservationStatus{Conditions: r.Status.Conditions}
	for _, address := range a.Addresses {
		next.Addresses = append(next.Addresses, address.String())
		var names []string
		for _, user := range b.Users[address] {
			if user.Namespace == r.Namespace {
				names = append(names, user.Name)
			}
		}
		if len(names) > 0 {
			next.Used++
			next.InUse = append(next.InUse, v1beta1.AddressInUse{Address: address.String(), Services: names[:min(len(names), maxUsers)]})
		}
	}
	reserved := judge(v1beta1.ConditionReserved, v1beta1.ReasonAllocated, messageReserved, a.Problems, a.Met, r.Generation, now)
	if changed := with(next.Conditions, reserved); changed != nil {
		next.Conditions = changed
	}
	var invalid []problem.Problem
	if b.Invalid != nil {
		invalid = append(invalid, *b.Invalid)
	}
	if changed := Ready(next.Conditions, r.Generation, invalid, len(invalid) == 0, now); changed != nil {
		next.Conditions = changed
	}
	return next
}

// ReservationEvents are what a change of an IPReservation's status has to tell: addresses
// that came or went, and what is newly wrong. Allocated tells of all that is.
func ReservationEvents(before, after *v1beta1.IPReservationStatus) []Event {
	return slices.Concat(moves(before.Addresses, after.Addresses),
		warnings(before.Conditions, after.Conditions, v1beta1.ConditionReserved, v1beta1.ReasonAllocated, ActionAllocate))
}
