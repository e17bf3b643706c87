package reconcile

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view"
)

// setReservation takes in the newest state of one IPReservation, nil for one that is gone.
func (o *objects) setReservation(key client.ObjectKey, r *v1beta1.IPReservation) bool {
	ref := view.Ref{Namespace: key.Namespace, Name: key.Name}
	o.others = true
	o.bookings.set(ref, r)
	return true
}

func (w *statusPlanner) reservation(ref view.Ref, r *v1beta1.IPReservation, v *view.Reservation) {
	assignment, ours := w.outcome.Assigned.Reservations[ref]
	if !ours {
		return
	}
	object := v.Object()
	next := status.Reservation(r, status.Allocation{
		Addresses: assignment.Addresses,
		Met:       !w.unmet[object],
		Problems:  withStray(w.problems[object], v.Stray),
	}, status.Reserved{Invalid: v.Invalid, Users: w.outcome.Users}, w.now)
	if !slices.Equal(assignment.Addresses, v.Held) {
		w.unseen[object] = unseen{r.ResourceVersion, assignment}
	}
	if equality.Semantic.DeepEqual(&r.Status, next) || !w.recorded(assignment.Addresses, v.Held) {
		return
	}
	changed := r.DeepCopy()
	changed.Status = *next
	w.writes[object] = write{base: r, next: changed, events: status.ReservationEvents(&r.Status, next)}
}

// current is the version of a Service, an IPReservation or an IPAddressPool that the
// snapshot has, "" for none.
func (s *snapshot) current(object problem.Object) string {
	ref := view.Ref{Namespace: object.Namespace, Name: object.Name}
	switch object.Kind {
	case "Service":
		if service := s.services[ref]; service != nil {
			return service.ResourceVersion
		}
	case "IPAddressPool":
		if p := s.pools[object.Name]; p != nil {
			return p.ResourceVersion
		}
	default:
		if r := cmp.Or(s.reservations[ref], s.excess[ref]); r != nil {
			return r.ResourceVersion
		}
	}
	return ""
}
