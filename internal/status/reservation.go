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

// Reserved is what there is to say of an IPReservation beside its addresses.
type Reserved struct {
	// Invalid says what of the spec cannot be read.
	Invalid *problem.Problem
	// Users are the Services on reserved addresses, sorted, those of others too.
	Users map[netip.Addr][]view.Ref
}

// Reservation returns the status of an IPReservation: the addresses, the Services on them,
// and the conditions Allocated and Ready. It equals the present one when there is nothing to
// change.
func Reservation(r *v1beta1.IPReservation, a Allocation, b Reserved, now metav1.Time) *v1beta1.IPReservationStatus {
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
	next.Conditions = with(next.Conditions, reserved)
	var invalid []problem.Problem
	if b.Invalid != nil {
		invalid = append(invalid, *b.Invalid)
	}
	next.Conditions = Ready(next.Conditions, r.Generation, invalid, len(invalid) == 0, now)
	return next
}

// ReservationEvents returns the Events of a change of an IPReservation's status: addresses
// that came or went, and new problems.
func ReservationEvents(before, after *v1beta1.IPReservationStatus) []Event {
	return slices.Concat(moves(before.Addresses, after.Addresses),
		warnings(before.Conditions, after.Conditions, v1beta1.ConditionReserved, v1beta1.ReasonAllocated, ActionAllocate))
}
