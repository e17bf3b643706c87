// Package status renders what the controller decided into status fields, conditions and
// Events; speaker/report renders what a node finds. Nothing here writes to the API server.
package status

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

const (
	messageAllocated = "the Service has the addresses that it asks for"
	messageReady     = "the object is valid and in use"

	messageHasCapacity = "the pool can give an address of each of its families"
	messageAdvertised  = "an advertisement covers the pool"
)

// Allocation is the outcome for one Service or IPReservation.
type Allocation struct {
	Addresses []netip.Addr
	// Guest are those of them that Services of another namespace had first.
	Guest []netip.Addr
	// Met: it has everything that it insists on, whatever Problems add.
	Met      bool
	Problems []problem.Problem
}

// Service renders the outcome into the status of a Service: the addresses, each
// with ipMode VIP, and the conditions fairlead.dev/Allocated and fairlead.dev/Guest. What else is
// in the status stays. now is the time of a transition. nil: nothing to change.
func Service(s *corev1.Service, a Allocation, now metav1.Time) *corev1.ServiceStatus {
	condition := judge(v1beta1.ConditionAllocated, v1beta1.ReasonAllocated, messageAllocated, a.Problems, a.Met, s.Generation, now)
	same := shows(s.Status.LoadBalancer.Ingress, a.Addresses)
	conditions := withGuest(with(s.Status.Conditions, condition), a.Guest, s.Generation, now)
	if same && slices.Equal(conditions, s.Status.Conditions) {
		return nil
	}
	next := s.Status.DeepCopy()
	if next.Conditions = conditions; !same {
		next.LoadBalancer.Ingress = ingress(a.Addresses)
	}
	return next
}

// withGuest adds the condition fairlead.dev/Guest for these addresses, or takes it off if there are none.
func withGuest(conditions []metav1.Condition, addresses []netip.Addr, generation int64, now metav1.Time) []metav1.Condition {
	if len(addresses) == 0 {
		return without(conditions, v1beta1.ConditionGuest)
	}
	message := v1beta1.GuestOf + strings.Join(addr.Texts(addresses), ", ")
	return with(conditions, holds(v1beta1.ConditionGuest, v1beta1.ReasonGuest, message, generation, now))
}

// without returns the conditions but for those of a type.
func without(conditions []metav1.Condition, conditionType string) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return c.Type == conditionType })
}

// Released takes Fairlead's conditions off a Service that is no longer of type LoadBalancer; the API
// server has taken the addresses. nil: there are none.
func Released(s *corev1.Service) *corev1.ServiceStatus {
	conditions := without(without(s.Status.Conditions, v1beta1.ConditionAllocated), v1beta1.ConditionGuest)
	if len(conditions) == len(s.Status.Conditions) {
		return nil
	}
	next := s.Status.DeepCopy()
	next.Conditions = conditions
	return next
}

// Unserved has the condition fairlead.dev/Allocated of a Service that is not of Fairlead's classes any more say so, and leaves its
// addresses. nil: it has no such condition, or says it already.
func Unserved(s *corev1.Service, reason, message string, now metav1.Time) *corev1.ServiceStatus {
	condition := holds(v1beta1.ConditionAllocated, reason, message, s.Generation, now)
	condition.Status = metav1.ConditionFalse
	if meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated) == nil || says(s.Status.Conditions, condition) {
		return nil
	}
	next := s.Status.DeepCopy()
	next.Conditions = with(next.Conditions, condition)
	return next
}

// Ready returns the conditions with the condition Ready of an object of ours. inUse: its
// problems do not keep it from taking part; it is when there is none. Here and below, the
// result equals the conditions when there is nothing to change, and now is the time of a
// transition.
func Ready(conditions []metav1.Condition, generation int64, problems []problem.Problem, inUse bool, now metav1.Time) []metav1.Condition {
	return with(conditions, judge(v1beta1.ConditionReady, v1beta1.ReasonReady, messageReady, problems, inUse, generation, now))
}

// judge makes a condition of the problems of one object. well: they leave it True; reason
// and message are what it says when there is none.
func judge(conditionType, reason, message string, problems []problem.Problem, well bool, generation int64, now metav1.Time) metav1.Condition {
	condition := holds(conditionType, reason, message, generation, now)
	if !well {
		condition.Status = metav1.ConditionFalse
	}
	if len(problems) > 0 {
		condition.Reason, condition.Message = tell(problems)
	}
	return condition
}

// holds is a condition that is True.
func holds(conditionType, reason, message string, generation int64, now metav1.Time) metav1.Condition {
	return metav1.Condition{
		Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: message,
		ObservedGeneration: generation, LastTransitionTime: now,
	}
}

// HasCapacity returns the conditions of a pool with whether it can give addresses; lack is
// why it cannot, nil when it can.
func HasCapacity(conditions []metav1.Condition, generation int64, lack *problem.Problem, now metav1.Time) []metav1.Condition {
	condition := holds(v1beta1.ConditionHasCapacity, v1beta1.ReasonHasCapacity, messageHasCapacity, generation, now)
	if lack != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, lack.Reason, lack.Message
	}
	return with(conditions, condition)
}

// Advertised returns the conditions of a pool with whether an advertisement covers it; lack
// is why none does, nil when one does. held: addresses of the pool are in use, which no node
// announces then.
func Advertised(conditions []metav1.Condition, generation int64, lack *problem.Problem, held bool, now metav1.Time) []metav1.Condition {
	condition := holds(v1beta1.ConditionAdvertised, v1beta1.ReasonAdvertised, messageAdvertised, generation, now)
	if lack != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, lack.Reason, lack.Message
		if held {
			condition.Status = metav1.ConditionFalse
		}
	}
	return with(conditions, condition)
}

// maxMessage is how many bytes a message has at most. The API server takes 32 KiB, and one that quotes what a
// user wrote can be longer: then no status of the object would be written, and its address never given.
const maxMessage = 8 << 10

// with adds the condition, or replaces the one of its type, unless it is there already. All conditions
// are written by it.
func with(conditions []metav1.Condition, condition metav1.Condition) []metav1.Condition {
	condition.Message = problem.Clip(condition.Message, maxMessage)
	if says(conditions, condition) {
		return conditions
	}
	next := slices.Clone(conditions)
	meta.SetStatusCondition(&next, condition)
	return next
}

// tell joins the problems of one object. The reason is that of the first.
func tell(problems []problem.Problem) (reason, message string) {
	messages := make([]string, 0, len(problems))
	for _, p := range problems {
		messages = append(messages, p.Message)
	}
	return problems[0].Reason, strings.Join(messages, "; ")
}

// says reports whether the condition is there already; when it began does not matter.
func says(conditions []metav1.Condition, want metav1.Condition) bool {
	have := meta.FindStatusCondition(conditions, want.Type)
	if have == nil {
		return false
	}
	want.LastTransitionTime = have.LastTransitionTime
	return *have == want
}

func shows(have []corev1.LoadBalancerIngress, want []netip.Addr) bool {
	return slices.EqualFunc(have, want, func(h corev1.LoadBalancerIngress, w netip.Addr) bool {
		a, err := netip.ParseAddr(h.IP)
		return err == nil && a == w && h.Hostname == "" && h.IPMode != nil && *h.IPMode == corev1.LoadBalancerIPModeVIP
	})
}

func ingress(addresses []netip.Addr) []corev1.LoadBalancerIngress {
	mode := corev1.LoadBalancerIPModeVIP
	entries := make([]corev1.LoadBalancerIngress, 0, len(addresses))
	for _, a := range addresses {
		entries = append(entries, corev1.LoadBalancerIngress{IP: a.String(), IPMode: &mode})
	}
	return entries
}

// Reasons of the condition Established of a BGPPeer when it is False.
const (
	// ReasonNotEstablished: a node that the peer chooses has no session that is up.
	ReasonNotEstablished = "NotEstablished"
	// ReasonNoNodeSelected: the peer chooses no node.
	ReasonNoNodeSelected = "NoNodeSelected"
)

// Peer returns the status of a BGPPeer: how many of the nodes that it chooses have an
// established session, why the others have none, and its problems. inUse: these do not keep
// it from taking part. It equals the present one when there is nothing to change.
func Peer(p *v1beta1.BGPPeer, problems []problem.Problem, inUse bool, established, nodes int, lacking []string, now metav1.Time) *v1beta1.BGPPeerStatus {
	condition := holds(v1beta1.ConditionEstablished, v1beta1.ReasonEstablished, "the session of every node that the peer chooses is established", p.Generation, now)
	switch {
	case nodes == 0:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, ReasonNoNodeSelected, "spec.nodeSelectors: no node has such labels, so nobody talks to the router"
	case len(lacking) > 0:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, ReasonNotEstablished, problem.List(lacking, "; ")
	}
	return &v1beta1.BGPPeerStatus{
		Sessions:   fmt.Sprintf("%d/%d", established, nodes),
		Conditions: with(Ready(p.Status.Conditions, p.Generation, problems, inUse, now), condition),
	}
}

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
