package status_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

var (
	then = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	now  = metav1.NewTime(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	full = []problem.Problem{{Reason: "PoolExhausted", Message: "no address is free"}, {Reason: "Other", Message: "and more"}}
)

func addresses(texts ...string) []netip.Addr {
	var found []netip.Addr
	for _, t := range texts {
		found = append(found, netip.MustParseAddr(t))
	}
	return found
}

func ingress(ip string, mode corev1.LoadBalancerIPMode) corev1.LoadBalancerIngress {
	return corev1.LoadBalancerIngress{IP: ip, IPMode: &mode}
}

func allocated(at metav1.Time, value metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{
		Type: v1beta1.ConditionAllocated, Status: value, ObservedGeneration: 3,
		LastTransitionTime: at, Reason: reason, Message: message,
	}
}

var (
	fine   = allocated(then, metav1.ConditionTrue, "Allocated", "the Service has the addresses that it asks for")
	theirs = metav1.Condition{Type: "example.com/Other", Status: metav1.ConditionTrue, LastTransitionTime: then, Reason: "Theirs"}
)

func TestService(t *testing.T) {
	t.Parallel()
	one := addresses("192.0.2.1")
	tests := map[string]struct {
		ingress    []corev1.LoadBalancerIngress
		conditions []metav1.Condition
		outcome    status.Allocation
		want       *corev1.ServiceStatus
		events     []status.Event
	}{
		"first address": {
			conditions: []metav1.Condition{theirs},
			outcome:    status.Allocation{Addresses: addresses("192.0.2.1", "2001:db8::1"), Met: true},
			want: &corev1.ServiceStatus{
				LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{ingress("192.0.2.1", "VIP"), ingress("2001:db8::1", "VIP")}},
				Conditions:   []metav1.Condition{theirs, allocated(now, metav1.ConditionTrue, fine.Reason, fine.Message)},
			},
			events: []status.Event{{Type: "Normal", Reason: "Allocated", Action: "Allocate", Note: "got 192.0.2.1, 2001:db8::1"}},
		},
		"nothing changed": {
			ingress:    []corev1.LoadBalancerIngress{ingress("192.0.2.1", "VIP")},
			conditions: []metav1.Condition{fine},
			outcome:    status.Allocation{Addresses: one, Met: true},
		},
		"an ipMode of someone else": {
			ingress:    []corev1.LoadBalancerIngress{ingress("192.0.2.1", "Proxy")},
			conditions: []metav1.Condition{fine},
			outcome:    status.Allocation{Addresses: one, Met: true},
			want: &corev1.ServiceStatus{
				LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{ingress("192.0.2.1", "VIP")}},
				Conditions:   []metav1.Condition{fine},
			},
		},
		"the pool is full": {
			outcome: status.Allocation{Problems: full},
			want: &corev1.ServiceStatus{
				Conditions: []metav1.Condition{allocated(now, metav1.ConditionFalse, "PoolExhausted", "no address is free; and more")},
			},
			events: []status.Event{{Type: "Warning", Reason: "PoolExhausted", Action: "Allocate", Note: "no address is free; and more"}},
		},
		"the pool is still full": {
			conditions: []metav1.Condition{allocated(then, metav1.ConditionFalse, "PoolExhausted", "no address is free; and more")},
			outcome:    status.Allocation{Problems: full},
		},
		"an advice": {
			ingress:    []corev1.LoadBalancerIngress{ingress("192.0.2.1", "VIP")},
			conditions: []metav1.Condition{fine},
			outcome:    status.Allocation{Addresses: one, Met: true, Problems: full[1:]},
			want: &corev1.ServiceStatus{
				LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{ingress("192.0.2.1", "VIP")}},
				Conditions:   []metav1.Condition{allocated(then, metav1.ConditionTrue, "Other", "and more")},
			},
			events: []status.Event{{Type: "Warning", Reason: "Other", Action: "Allocate", Note: "and more"}},
		},
		"a move": {
			ingress:    []corev1.LoadBalancerIngress{ingress("192.0.2.1", "VIP")},
			conditions: []metav1.Condition{fine},
			outcome:    status.Allocation{Addresses: addresses("192.0.2.2"), Met: true},
			want: &corev1.ServiceStatus{
				LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{ingress("192.0.2.2", "VIP")}},
				Conditions:   []metav1.Condition{fine},
			},
			events: []status.Event{
				{Type: "Normal", Reason: "Released", Action: "Release", Note: "gave back 192.0.2.1"},
				{Type: "Normal", Reason: "Allocated", Action: "Allocate", Note: "got 192.0.2.2"},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			s.Status.LoadBalancer.Ingress = tt.ingress
			s.Status.Conditions = tt.conditions
			before := s.DeepCopy()
			got := status.Service(s, tt.outcome, now)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Fatalf("status (-want +got):\n%s", d)
			}
			if d := cmp.Diff(before, s); d != "" {
				t.Fatalf("the Service itself was changed:\n%s", d)
			}
			if got == nil {
				return
			}
			if d := cmp.Diff(tt.events, status.ServiceEvents(&s.Status, got)); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
			s.Status = *got
			if again := status.Service(s, tt.outcome, now); again != nil {
				t.Errorf("written, and yet to be written again: %+v", again)
			}
		})
	}
}

func TestReleased(t *testing.T) {
	t.Parallel()
	s := &corev1.Service{}
	s.Status.Conditions = []metav1.Condition{fine, theirs}
	got := status.Released(s)
	if d := cmp.Diff(&corev1.ServiceStatus{Conditions: []metav1.Condition{theirs}}, got); d != "" {
		t.Fatalf("status (-want +got):\n%s", d)
	}
	s.Status = *got
	if again := status.Released(s); again != nil {
		t.Errorf("nothing of ours is left, and yet to be written: %+v", again)
	}
}

func TestUnserved(t *testing.T) {
	t.Parallel()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	if got := status.Unserved(s, "Left", "why", now); got != nil {
		t.Errorf("a Service of others is told: %+v", got)
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{ingress("192.0.2.1", "VIP")}
	s.Status.Conditions = []metav1.Condition{fine, theirs}
	got := status.Unserved(s, "Left", "why", now)
	want := s.Status.DeepCopy()
	want.Conditions[0] = allocated(now, metav1.ConditionFalse, "Left", "why")
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("status (-want +got):\n%s", d)
	}
	s.Status = *got
	if again := status.Unserved(s, "Left", "why", then); again != nil {
		t.Errorf("written, and yet to be written again: %+v", again)
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	bad := status.Ready(nil, 1, full, false, then)
	want := []metav1.Condition{{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: 1, LastTransitionTime: then,
		Reason: "PoolExhausted", Message: "no address is free; and more",
	}}
	if d := cmp.Diff(want, bad); d != "" {
		t.Fatalf("conditions (-want +got):\n%s", d)
	}
	if again := status.Ready(bad, 1, full, false, now); !slices.Equal(again, bad) {
		t.Errorf("written, and yet to be written again: %+v", again)
	}
	edited := status.Ready(bad, 2, full, false, now)
	if edited == nil || edited[0].ObservedGeneration != 2 || edited[0].LastTransitionTime != then {
		t.Errorf("after an edit that changed nothing: %+v", edited)
	}
	well := status.Ready(bad, 1, nil, true, now)
	if well == nil || well[0].Status != metav1.ConditionTrue || well[0].LastTransitionTime != now {
		t.Errorf("after the cure: %+v", well)
	}

	warned := []status.Event{{Type: "Warning", Reason: "PoolExhausted", Action: "Verify", Note: "no address is free; and more"}}
	cured := []status.Event{{Type: "Normal", Reason: "Ready", Action: "Verify", Note: "the object is valid and in use"}}
	if d := cmp.Diff(warned, status.ReadyEvents(nil, bad)); d != "" {
		t.Errorf("events of the fault (-want +got):\n%s", d)
	}
	if d := cmp.Diff(cured, status.ReadyEvents(bad, well)); d != "" {
		t.Errorf("events of the cure (-want +got):\n%s", d)
	}
	long := []problem.Problem{{Reason: "Long", Message: strings.Repeat("é", 1000)}}
	if note := status.ReadyEvents(nil, status.Ready(nil, 1, long, false, now))[0].Note; len(note) > 1024 || !utf8.ValidString(note) {
		t.Errorf("a note of %d bytes, of which the API server takes 1024: %s", len(note), note)
	}
	if events := append(status.ReadyEvents(nil, well), status.ReadyEvents(bad, edited)...); len(events) > 0 {
		t.Errorf("told without need: %v", events)
	}
}

// TestGuest: the condition Guest comes with the addresses in one write, is what is read back, and goes.
func TestGuest(t *testing.T) {
	t.Parallel()
	a := status.Allocation{Addresses: addresses("192.0.2.1", "2001:db8::1"), Guest: addresses("192.0.2.1", "2001:db8::1"), Met: true}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1"}}
	for _, guest := range [][]netip.Addr{addresses("192.0.2.1", "2001:db8::1"), addresses("2001:db8::1"), nil} {
		a.Guest = guest
		next := status.Service(s, a, now)
		if next == nil {
			t.Fatalf("nothing is written for a guest on %v", guest)
		}
		s.Status = *next
		if got := fromkube.Service(s).Guest; !slices.Equal(got, guest) {
			t.Errorf("a guest on %v is read as one on %v: %v", guest, got, next.Conditions)
		}
		if again := status.Service(s, a, now); again != nil {
			t.Errorf("it is written again: %v", again)
		}
	}
	a.Guest = addresses("2001:db8::1")
	s.Status = *status.Service(s, a, now)
	if released := status.Released(s); released == nil || len(released.Conditions) > 0 {
		t.Errorf("released: %v", released)
	}
}

// TestMessagesAreClipped: the API server takes 32 KiB in a message.
func TestMessagesAreClipped(t *testing.T) {
	t.Parallel()
	long := []problem.Problem{{Reason: "Long", Message: strings.Repeat("ü", 50_000)}, {Reason: "Long", Message: "and more"}}
	s := &corev1.Service{}
	s.Status = *status.Service(s, status.Allocation{Problems: long}, now)
	conditions := slices.Concat(s.Status.Conditions,
		status.Ready(nil, 1, long, false, now), status.HasCapacity(nil, 1, &long[0], now), status.Advertised(nil, 1, &long[0], true, now),
		status.Peer(&v1beta1.BGPPeer{}, long, false, 0, 9, []string{long[0].Message}, now).Conditions,
		status.Reservation(&v1beta1.IPReservation{}, status.Allocation{Problems: long}, status.Reserved{Invalid: &long[0]}, now).Conditions)
	for _, c := range conditions {
		if len(c.Message) > 8<<10 || !utf8.ValidString(c.Message) || c.Reason == "Long" && !strings.HasSuffix(c.Message, "…") {
			t.Errorf("%s has %d bytes: …%q", c.Type, len(c.Message), c.Message[max(0, len(c.Message)-9):])
		}
	}
	if again := status.Service(s, status.Allocation{Problems: long}, now); again != nil {
		t.Error("what is clipped is written again and again")
	}
}
