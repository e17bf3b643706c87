package reconcile

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// ReasonTooManyReservations is on an IPReservation: its namespace has as many that are older, or hold something, as are
// looked at.
const ReasonTooManyReservations = "TooManyReservations"

// maxBookings is how many IPReservations of one namespace are looked at, besides those that hold something: each pass costs
// time for each of them, and any user of a namespace may create them.
const maxBookings = 1000

// bookings are the IPReservations. A change costs what a change of a sorted list does, and a pass nothing for those that
// are too many.
type bookings struct {
	objects map[view.Ref]*v1beta1.IPReservation
	views   map[view.Ref]*view.Reservation
	of      map[string]*namespaceBookings
}

// namespaceBookings are those of one namespace.
type namespaceBookings struct {
	holding map[view.Ref]struct{}
	waiting []*view.Reservation // those that hold nothing, the oldest first
	untold  map[view.Ref]struct{}
}

func newBookings() bookings {
	return bookings{map[view.Ref]*v1beta1.IPReservation{}, map[view.Ref]*view.Reservation{}, map[string]*namespaceBookings{}}
}

func byAge(a, b *view.Reservation) int { return cmp.Or(a.Created.Compare(b.Created), a.Compare(b.Ref)) }

// set takes in the newest state of one, nil for one that is gone.
func (b *bookings) set(ref view.Ref, r *v1beta1.IPReservation) {
	n := b.of[ref.Namespace]
	if n == nil {
		n = &namespaceBookings{map[view.Ref]struct{}{}, nil, map[view.Ref]struct{}{}}
		b.of[ref.Namespace] = n
	}
	if before := b.views[ref]; before != nil {
		delete(n.holding, ref)
		delete(n.untold, ref)
		if at, waits := slices.BinarySearchFunc(n.waiting, before, byAge); waits {
			n.waiting = slices.Delete(n.waiting, at, at+1)
		}
	}
	if r == nil {
		delete(b.objects, ref)
		delete(b.views, ref)
		if len(n.holding)+len(n.waiting) == 0 {
			delete(b.of, ref.Namespace)
		}
		return
	}
	now := fromkube.Reservation(r)
	b.objects[ref], b.views[ref] = r, now
	if c := meta.FindStatusCondition(r.Status.Conditions, v1beta1.ConditionReserved); c == nil || c.Reason != ReasonTooManyReservations {
		n.untold[ref] = struct{}{}
	}
	if len(now.Held) > 0 {
		n.holding[ref] = struct{}{}
		return
	}
	at, _ := slices.BinarySearchFunc(n.waiting, now, byAge)
	n.waiting = slices.Insert(n.waiting, at, now)
}

// looked are those that count, and excess those that do not and whose status does not say so yet.
func (b *bookings) looked() (views map[view.Ref]*view.Reservation, objects, excess map[view.Ref]*v1beta1.IPReservation) {
	views, objects, excess = map[view.Ref]*view.Reservation{}, map[view.Ref]*v1beta1.IPReservation{}, map[view.Ref]*v1beta1.IPReservation{}
	for _, n := range b.of {
		for ref := range n.holding {
			views[ref], objects[ref] = b.views[ref], b.objects[ref]
		}
		for _, r := range n.waiting[:min(len(n.waiting), max(maxBookings-len(n.holding), 0))] {
			views[r.Ref], objects[r.Ref] = r, b.objects[r.Ref]
		}
		if len(n.holding)+len(n.waiting) <= maxBookings {
			continue
		}
		for ref := range n.untold {
			if views[ref] == nil {
				excess[ref] = b.objects[ref]
			}
		}
	}
	return views, objects, excess
}

// withAssumed is the snapshot where what is on its way to IPReservations that are too many by now still counts: the
// write may land.
func (s *snapshot) withAssumed(last map[problem.Object]unseen) *snapshot {
	next := s
	for object := range last {
		ref := view.Ref{Namespace: object.Namespace, Name: object.Name}
		r := s.excess[ref]
		if object.Kind != "IPReservation" || r == nil {
			continue
		}
		if next == s {
			copied, cluster := *s, *s.cluster
			next, copied.cluster = &copied, &cluster
			cluster.Reservations, copied.reservations, copied.excess = maps.Clone(cluster.Reservations), maps.Clone(s.reservations), maps.Clone(s.excess)
		}
		next.cluster.Reservations[ref], next.reservations[ref] = fromkube.Reservation(r), r
		delete(next.excess, ref)
	}
	return next
}

// tooMany has an IPReservation say that it is one of too many.
func (w *statusPlanner) tooMany(ref view.Ref, r *v1beta1.IPReservation) {
	object := problem.Object{Kind: "IPReservation", Namespace: ref.Namespace, Name: ref.Name}
	p := problem.New(object, ReasonTooManyReservations, "of the IPReservations of a namespace %d are looked at, those that hold something first, then the oldest: "+
		"delete some, or have one hold several addresses (spec.count)", maxBookings)
	changed := r.DeepCopy()
	changed.Status = *status.Reservation(r, status.Allocation{Problems: []problem.Problem{p}}, status.Reserved{}, w.now)
	w.writes[object] = write{base: r, next: changed}
}
