package status_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view"
)

func TestReservation(t *testing.T) {
	t.Parallel()
	condition := func(kind string, value metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: value, ObservedGeneration: 3, LastTransitionTime: now, Reason: reason, Message: message}
	}
	ready := condition("Ready", metav1.ConditionTrue, "Ready", "the object is valid and in use")
	users := map[netip.Addr][]view.Ref{
		netip.MustParseAddr("192.0.2.1"): {{Namespace: "elsewhere", Name: "a"}, {Namespace: "shop", Name: "b"}, {Namespace: "shop", Name: "c"}},
		netip.MustParseAddr("192.0.2.9"): {{Namespace: "shop", Name: "not-reserved"}},
	}
	crowd := map[netip.Addr][]view.Ref{}
	for i := range 17 {
		a := netip.MustParseAddr("192.0.2.1")
		crowd[a] = append(crowd[a], view.Ref{Namespace: "shop", Name: fmt.Sprintf("s%02d", i)})
	}
	bad := problem.Problem{Reason: "InvalidAddresses", Message: "spec: nonsense"}

	r := &v1beta1.IPReservation{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r", Generation: 3}}
	step := func(what string, a status.Allocation, b status.Reserved, want v1beta1.IPReservationStatus, events ...status.Event) {
		t.Helper()
		before := r.DeepCopy()
		got := status.Reservation(r, a, b, now)
		if d := cmp.Diff(&want, got); d != "" {
			t.Errorf("%s: status (-want +got):\n%s", what, d)
		}
		if d := cmp.Diff(before, r); d != "" {
			t.Errorf("%s: the object itself was changed:\n%s", what, d)
		}
		if d := cmp.Diff(events, status.ReservationEvents(&r.Status, got)); d != "" {
			t.Errorf("%s: events (-want +got):\n%s", what, d)
		}
		r.Status = *got
		if again := status.Reservation(r, a, b, then); !cmp.Equal(got, again) {
			t.Errorf("%s: written, and yet to be written again: %+v", what, again)
		}
	}
	step("less than it asks for", status.Allocation{Addresses: addresses("192.0.2.1"), Problems: full}, status.Reserved{Users: users},
		v1beta1.IPReservationStatus{
			Addresses: []string{"192.0.2.1"}, Used: 1, InUse: []v1beta1.AddressInUse{{Address: "192.0.2.1", Services: []string{"b", "c"}}},
			Conditions: []metav1.Condition{condition("Allocated", metav1.ConditionFalse, "PoolExhausted", "no address is free; and more"), ready},
		},
		status.Event{Type: "Normal", Reason: "Allocated", Action: "Allocate", Note: "got 192.0.2.1"},
		status.Event{Type: "Warning", Reason: "PoolExhausted", Action: "Allocate", Note: "no address is free; and more"})
	allocated := condition("Allocated", metav1.ConditionTrue, "Allocated", "the reservation holds the addresses that it asks for")
	step("all of it, and nobody is there", status.Allocation{Addresses: addresses("192.0.2.1", "2001:db8::1"), Met: true}, status.Reserved{},
		v1beta1.IPReservationStatus{Addresses: []string{"192.0.2.1", "2001:db8::1"}, Conditions: []metav1.Condition{allocated, ready}},
		status.Event{Type: "Normal", Reason: "Allocated", Action: "Allocate", Note: "got 2001:db8::1"})
	step("a crowd", status.Allocation{Addresses: addresses("192.0.2.1"), Met: true}, status.Reserved{Users: crowd},
		v1beta1.IPReservationStatus{
			Addresses: []string{"192.0.2.1"}, Used: 1, Conditions: []metav1.Condition{allocated, ready},
			InUse: []v1beta1.AddressInUse{{Address: "192.0.2.1", Services: []string{
				"s00", "s01", "s02", "s03", "s04", "s05", "s06", "s07", "s08", "s09", "s10", "s11", "s12", "s13", "s14", "s15",
			}}},
		},
		status.Event{Type: "Normal", Reason: "Released", Action: "Release", Note: "gave back 2001:db8::1"})
	step("a spec that cannot be read", status.Allocation{Addresses: addresses("192.0.2.1"), Problems: []problem.Problem{bad}}, status.Reserved{Invalid: &bad},
		v1beta1.IPReservationStatus{
			Addresses: []string{"192.0.2.1"},
			Conditions: []metav1.Condition{
				condition("Allocated", metav1.ConditionFalse, "InvalidAddresses", "spec: nonsense"),
				condition("Ready", metav1.ConditionFalse, "InvalidAddresses", "spec: nonsense"),
			},
		},
		status.Event{Type: "Warning", Reason: "InvalidAddresses", Action: "Allocate", Note: "spec: nonsense"})
}
