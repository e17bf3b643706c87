package watch_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/view"
)

// testWhatReservationsHold: what their status says is seen, each change is said to be one of that reservation alone, and one
// that holds nothing is none.
func testWhatReservationsHold(t *testing.T, server *apiserver.Server) {
	o := observe(t, server)
	o.sees("the kinds of ours", func(c *view.Cluster) bool { return c.Configured })
	r := &v1beta1.IPReservation{ObjectMeta: meta("default", "r", nil), Spec: v1beta1.IPReservationSpec{Addresses: []string{"192.0.2.7"}}}
	o.create(r)
	ref := view.Ref{Namespace: "default", Name: "r"}
	hold := func(addresses ...string) {
		base := r.DeepCopy()
		r.Status.Addresses = addresses
		if err := o.Status().Patch(o.Context(), r, client.MergeFrom(base)); err != nil {
			o.Fatal(err)
		}
	}
	// The first ones may come together with kinds that are read for the first time.
	alone := 0
	for n := 0; alone < 2; n++ {
		want := [][]string{{"192.0.2.7"}, {"192.0.2.7", "2001:db8::7"}}[n%2]
		hold(want...)
		c := o.sees("what it holds", func(c *view.Cluster) bool {
			return c.Reservations[ref] != nil && len(c.Reservations[ref].Held) == len(want)
		})
		_, told := c.Reserved[ref]
		if !c.Others {
			alone++
		}
		if !told || n == 20 {
			t.Fatalf("after %d changes changed are %v, and others: %t", n+1, c.Reserved, c.Others)
		}
	}
	if err := o.Delete(o.Context(), r); err != nil {
		o.Fatal(err)
	}
	c := o.sees("that it is gone", func(c *view.Cluster) bool { return c.Reservations[ref] == nil })
	if _, told := c.Reserved[ref]; !told {
		t.Errorf("changed are %v", c.Reserved)
	}
}
