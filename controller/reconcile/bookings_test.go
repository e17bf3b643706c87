package reconcile

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// book creates IPReservations of one namespace, each a second younger than the one before.
func book(o *objects, namespace string, from, to int) {
	for i := from; i < to; i++ {
		r := &v1beta1.IPReservation{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("r%d", i), ResourceVersion: "1", CreationTimestamp: metav1.Unix(int64(i), 0)},
			Spec:       v1beta1.IPReservationSpec{Count: new(int32(1))},
		}
		o.setReservation(client.ObjectKeyFromObject(r), r)
	}
}

func booking(namespace string, i int) problem.Object {
	return problem.Object{Kind: "IPReservation", Namespace: namespace, Name: fmt.Sprintf("r%d", i)}
}

// pass decides, and has the objects show what was to be written. It returns the writes.
func pass(t *testing.T, o *objects, last **decision) map[problem.Object]write {
	t.Helper()
	*last = decide(o.snapshot(), *last, indelible{}, view.Classes{}, time.Unix(1, 0))
	apply(t, o, *last)
	return (*last).writes
}

// TestTooManyReservations: of one namespace no more IPReservations are looked at than there is room for; the others are told
// once, and get what they ask for when others go. Those of other namespaces are served.
func TestTooManyReservations(t *testing.T) {
	t.Parallel()
	o, last := filled(t, 10, nil), &decision{}
	book(o, "greedy", 0, maxBookings+20)
	book(o, "shop", 0, 1)
	wrote := pass(t, o, &last)
	for i, want := range map[int]string{0: v1beta1.ReasonAllocated, maxBookings - 1: v1beta1.ReasonAllocated, maxBookings: ReasonTooManyReservations, maxBookings + 19: ReasonTooManyReservations} {
		w, ok := wrote[booking("greedy", i)]
		if !ok {
			t.Fatalf("nothing is written to %d", i)
		}
		r := w.next.(*v1beta1.IPReservation)
		c := meta.FindStatusCondition(r.Status.Conditions, v1beta1.ConditionReserved)
		if c == nil || c.Reason != want || (len(r.Status.Addresses) == 1) != (want == v1beta1.ReasonAllocated) {
			t.Errorf("%d is told %v and has %v, want %s", i, c, r.Status.Addresses, want)
		}
	}
	if w := wrote[booking("shop", 0)]; w.next == nil || len(w.next.(*v1beta1.IPReservation).Status.Addresses) != 1 {
		t.Error("another namespace got nothing")
	}
	for range 3 {
		wrote = pass(t, o, &last)
	}
	if len(wrote) > 0 {
		t.Errorf("at rest %d statuses are written", len(wrote))
	}
	gone := booking("greedy", 7)
	o.setReservation(client.ObjectKey{Namespace: gone.Namespace, Name: gone.Name}, nil)
	wrote = pass(t, o, &last)
	if w := wrote[booking("greedy", maxBookings)]; w.next == nil || len(w.next.(*v1beta1.IPReservation).Status.Addresses) != 1 {
		t.Errorf("the first that waited got nothing: %v", wrote)
	}
}

// TestWhatIsOnItsWayCounts: an IPReservation that comes to be one too many while its address is being written keeps it.
func TestWhatIsOnItsWayCounts(t *testing.T) {
	t.Parallel()
	o := filled(t, 10, nil)
	book(o, "greedy", 1, maxBookings+1)
	d := decide(o.snapshot(), &decision{}, indelible{}, view.Classes{}, time.Unix(1, 0))
	had := d.outcome.Assigned.Reservations[view.Ref{Namespace: "greedy", Name: fmt.Sprint("r", maxBookings)}].Addresses
	book(o, "greedy", 0, 1) // by an API server whose clock is behind
	for range 2 {
		d = decide(o.snapshot(), d, indelible{}, view.Classes{}, time.Unix(1, 0))
		got := d.outcome.Assigned.Reservations[view.Ref{Namespace: "greedy", Name: fmt.Sprint("r", maxBookings)}].Addresses
		if len(had) != 1 || len(got) != 1 || had[0] != got[0] {
			t.Fatalf("it had %v and has %v", had, got)
		}
	}
}

// BenchmarkReservations: a Service from its creation on, beside IPReservations of one namespace.
func BenchmarkReservations(b *testing.B) {
	for _, n := range []int{0, 1_000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			o := filled(b, 100, nil)
			book(o, "greedy", 0, n)
			last := decide(o.snapshot(), &decision{}, indelible{}, view.Classes{}, time.Unix(1, 0))
			apply(b, o, last)
			oneMore(b, o)
		})
	}
}
