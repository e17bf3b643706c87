package reconcile

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// restful knows one pool, of one address, that others get a minute after it is freed.
func restful() *objects {
	o := newObjects(fromkube.Requests{}, fromkube.Nodes{}, Own{})
	named(o, &o.Pools)(client.ObjectKey{Name: "p"}, &v1beta1.IPAddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1beta1.IPAddressPoolSpec{
			Addresses: []string{"192.0.2.1/32"}, CoolDown: &metav1.Duration{Duration: time.Minute},
		},
	})
	return o
}

// TestCoolDown: a freed address is kept from others for as long as the pool says, over a
// change of leaders too, and who left it gets it back.
func TestCoolDown(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_000_000, 500_000_000)
	o := restful()
	last := &decision{}
	pass := func(after time.Duration) {
		t.Helper()
		last = decide(o.snapshot(), last, indelible{}, view.Classes{}, begin.Add(after))
		apply(t, o, last)
	}
	create := func(name, version string) *corev1.Service {
		s := balanced(name, version)
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
		o.see(s)
		return s
	}
	holds := func(name string, want bool) {
		t.Helper()
		got := o.services[view.Ref{Namespace: "default", Name: name}].Status.LoadBalancer.Ingress
		if (len(got) == 1) != want {
			t.Errorf("%s holds %v, want an address: %t", name, got, want)
		}
	}
	remove := func(name string) { o.setService(client.ObjectKey{Namespace: "default", Name: name}, nil) }

	create("first", "1")
	pass(0)
	holds("first", true)
	if at := last.due(); !at.IsZero() {
		t.Errorf("due at %v while nothing cools down", at)
	}
	remove("first")
	create("second", "2")
	pass(time.Second)
	holds("second", false)
	until := begin.Truncate(time.Second).Add(62 * time.Second)
	if entries := o.Pools.Objects["p"].Status.CoolingDown; len(entries) != 1 || entries[0].Address != "192.0.2.1" ||
		entries[0].Service != "default/first" || !entries[0].Until.Time.Equal(until) {
		t.Fatalf("the status of the pool lists %+v, want 192.0.2.1 of default/first until %v", entries, until)
	}
	if !last.due().Equal(until) {
		t.Errorf("due at %v, want %v", last.due(), until)
	}

	last = &decision{book: last.book} // another leader, who has read what is stored
	pass(30 * time.Second)
	holds("second", false)
	create("first", "3")
	pass(40 * time.Second)
	holds("first", true)
	holds("second", false)
	if entries := o.Pools.Objects["p"].Status.CoolingDown; len(entries) > 0 {
		t.Errorf("it is in use and cools down: %+v", entries)
	}
	remove("first")
	pass(50 * time.Second)
	holds("second", false)
	pass(112 * time.Second)
	holds("second", true)
	if entries := o.Pools.Objects["p"].Status.CoolingDown; len(entries) > 0 || !last.due().IsZero() {
		t.Errorf("still cooling down: %+v", entries)
	}
}

// TestReservationCoolsDown: what a reservation gives back is kept from others; what it
// holds is not freed by a Service that leaves it.
func TestReservationCoolsDown(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_000_000, 0)
	o := restful()
	last := &decision{}
	pass := func(after time.Duration) {
		t.Helper()
		for range 2 { // a Service follows its reservation
			last = decide(o.snapshot(), last, indelible{}, view.Classes{}, begin.Add(after))
			apply(t, o, last)
		}
	}
	key := client.ObjectKey{Namespace: "default", Name: "r"}
	reserve := func(version string) {
		o.setReservation(key, &v1beta1.IPReservation{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: version},
			Spec:       v1beta1.IPReservationSpec{Count: new(int32(1))},
		})
	}
	holds := func(want int) {
		t.Helper()
		if got := o.bookings.objects[view.Ref(key)].Status.Addresses; len(got) != want {
			t.Errorf("the reservation holds %v, want %d", got, want)
		}
	}
	reserve("1")
	s := balanced("a", "2")
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	s.Annotations = map[string]string{v1beta1.AnnotationReservation: "r"}
	o.see(s)
	pass(0)
	holds(1)
	if got := o.services[view.Ref{Namespace: "default", Name: "a"}].Status.LoadBalancer.Ingress; len(got) != 1 {
		t.Errorf("the Service has %v, want the reserved address", got)
	}
	o.setService(client.ObjectKeyFromObject(s), nil)
	pass(time.Second)
	holds(1)
	if entries := o.Pools.Objects["p"].Status.CoolingDown; len(entries) > 0 {
		t.Errorf("it is reserved and cools down: %+v", entries)
	}
	o.setReservation(key, nil)
	other := balanced("b", "3")
	other.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	o.see(other)
	pass(2 * time.Second)
	if got := o.services[view.Ref{Namespace: "default", Name: "b"}].Status.LoadBalancer.Ingress; len(got) > 0 {
		t.Errorf("a freed address was given at once: %v", got)
	}
	if entries := o.Pools.Objects["p"].Status.CoolingDown; len(entries) != 1 || entries[0].Service != "default/r" {
		t.Errorf("cooling down: %+v, want what default/r had", entries)
	}
	reserve("4")
	pass(3 * time.Second)
	holds(1)
}

// TestSharedCoolsDown: an address that several have is recorded for the first of them by
// name, as long as it has it, and rests for the last one.
func TestSharedCoolsDown(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_000_000, 0)
	o := restful()
	last := &decision{}
	for i, name := range []string{"b", "a", "c"} {
		s := balanced(name, "1")
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
		s.Annotations = map[string]string{v1beta1.AnnotationShareKey: "k"}
		s.Spec.Ports = []corev1.ServicePort{{Port: int32(80 + i)}}
		o.see(s)
	}
	pass := func(owner string, rests bool) {
		t.Helper()
		anew := decide(o.snapshot(), &decision{book: last.book}, indelible{}, view.Classes{}, begin)
		for _, d := range []*decision{anew, decide(o.snapshot(), last, indelible{}, view.Classes{}, begin)} {
			e, _ := d.book.At(netip.MustParseAddr("192.0.2.1"))
			if e.Owner.Name != owner || e.Rests() != rests {
				t.Errorf("recorded is %v, want %s, resting: %t", e, owner, rests)
			}
			last = d
		}
		apply(t, o, last)
	}
	pass("a", false)
	pass("a", false)
	for _, step := range []struct {
		removed, owner string
		rests          bool
	}{{"a", "b", false}, {"c", "b", false}, {"b", "b", true}} {
		o.setService(client.ObjectKey{Namespace: "default", Name: step.removed}, nil)
		pass(step.owner, step.rests)
	}
}
