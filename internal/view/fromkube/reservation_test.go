package fromkube_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

func TestReservation(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ref := view.Ref{Namespace: "shop", Name: "web"}
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for name, tt := range map[string]struct {
		spec    v1beta1.IPReservationSpec
		held    []string
		going   bool
		want    view.Reservation
		invalid string
	}{
		"by name": {
			spec: v1beta1.IPReservationSpec{Addresses: []string{"192.0.2.1", "2001:db8::1"}, Pool: "public"},
			want: view.Reservation{Addresses: []netip.Addr{four, six}, Pool: "public", Families: []addr.Family{addr.IPv4}},
		},
		"by number": {
			spec: v1beta1.IPReservationSpec{Count: new(int32(3)), Families: []v1beta1.AddressFamily{"IPv6", "IPv4"}},
			held: []string{"2001:db8::1", "192.0.2.1"},
			want: view.Reservation{Count: 3, Families: addr.Families(), Held: []netip.Addr{six, four}},
		},
		"a status that somebody else has written": {
			spec:  v1beta1.IPReservationSpec{Count: new(int32(1))},
			held:  []string{"nonsense", "::ffff:192.0.2.1", "192.0.2.1", "192.0.2.1", "fe80::1%eth0"},
			going: true,
			want:  view.Reservation{Count: 1, Families: []addr.Family{addr.IPv4}, Held: []netip.Addr{four}, Deleting: true},
		},
		"nothing": {
			want:    view.Reservation{Families: []addr.Family{addr.IPv4}},
			invalid: "spec: give either addresses, to hold these, or count, to hold any",
		},
		"both": {
			spec:    v1beta1.IPReservationSpec{Count: new(int32(1)), Addresses: []string{"192.0.2.1"}},
			want:    view.Reservation{Count: 1, Addresses: []netip.Addr{four}, Families: []addr.Family{addr.IPv4}},
			invalid: "spec: give either addresses, to hold these, or count, to hold any",
		},
		"what is no address": {
			spec:    v1beta1.IPReservationSpec{Addresses: []string{"192.0.2.1", "192.0.2.0/24"}},
			want:    view.Reservation{Addresses: []netip.Addr{four}, Families: []addr.Family{addr.IPv4}},
			invalid: `spec.addresses[1]: "192.0.2.0/24" is not an IP address`,
		},
		"what no Service can have": {
			spec:    v1beta1.IPReservationSpec{Addresses: []string{"127.0.0.1"}},
			want:    view.Reservation{Families: []addr.Family{addr.IPv4}},
			invalid: "spec.addresses[0]: no Service can have 127.0.0.1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &v1beta1.IPReservation{
				ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, CreationTimestamp: metav1.NewTime(made)},
				Spec:       tt.spec, Status: v1beta1.IPReservationStatus{Addresses: tt.held},
			}
			if tt.going {
				r.DeletionTimestamp = &metav1.Time{Time: made}
			}
			got := fromkube.Reservation(r)
			tt.want.Ref, tt.want.Created = ref, made
			if d := cmp.Diff(tt.want, *got, cmpopts.IgnoreFields(view.Reservation{}, "Invalid"), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			told := ""
			if got.Invalid != nil {
				told = got.Invalid.Message
			}
			if told != tt.invalid {
				t.Errorf("told %q, want %q", told, tt.invalid)
			}
		})
	}
}
