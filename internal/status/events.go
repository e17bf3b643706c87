package status

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
)

// Actions of Events: what was being done to the object (events.k8s.io/v1).
const (
	ActionAllocate = "Allocate"
	ActionRelease  = "Release"
	ActionVerify   = "Verify"
)

// Event is something to tell about an object once.
type Event struct {
	Type   string // corev1.EventTypeNormal or EventTypeWarning
	Reason string
	Action string
	Note   string
}

// ServiceEvents returns the Events of a change of a Service's status: addresses that came or
// went, and new problems.
func ServiceEvents(before, after *corev1.ServiceStatus) []Event {
	return append(moves(ips(before), ips(after)), warnings(before.Conditions, after.Conditions, v1beta1.ConditionAllocated,
		v1beta1.ReasonAllocated, ActionAllocate)...)
}

// moves tells which addresses came and went.
func moves(had, has []string) []Event {
	var events []Event
	if gone := less(had, has); len(gone) > 0 {
		events = append(events, Event{
			corev1.EventTypeNormal, v1beta1.ReasonReleased, ActionRelease,
			"gave back " + strings.Join(gone, ", "),
		})
	}
	if came := less(has, had); len(came) > 0 {
		events = append(events, Event{
			corev1.EventTypeNormal, v1beta1.ReasonAllocated, ActionAllocate,
			"got " + strings.Join(came, ", "),
		})
	}
	return events
}

// ReadyEvents returns the Events of a change of the condition Ready: new problems, and that
// the object is well again.
func ReadyEvents(before, after []metav1.Condition) []Event {
	return changes(before, after, v1beta1.ConditionReady, v1beta1.ReasonReady, messageReady)
}

// changes has the Event of a new problem that a condition tells of, or of its end. well is its reason when there is none.
func changes(before, after []metav1.Condition, conditionType, well, message string) []Event {
	if meta.IsStatusConditionFalse(before, conditionType) && meta.IsStatusConditionTrue(after, conditionType) {
		return append(warnings(before, after, conditionType, well, ActionVerify), Event{corev1.EventTypeNormal, well, ActionVerify, message})
	}
	return warnings(before, after, conditionType, well, ActionVerify)
}

// PoolEvents returns the Events of a change of the conditions of a pool: those of Ready, that
// it has no addresses to give any more, or again, and that no node announces those in use, or
// one does again.
func PoolEvents(before, after []metav1.Condition) []Event {
	events := append(ReadyEvents(before, after),
		changes(before, after, v1beta1.ConditionHasCapacity, v1beta1.ReasonHasCapacity, messageHasCapacity)...)
	was, is := meta.FindStatusCondition(before, v1beta1.ConditionAdvertised), meta.FindStatusCondition(after, v1beta1.ConditionAdvertised)
	unannounced := was != nil && was.Status == metav1.ConditionFalse
	switch {
	case is == nil:
	case is.Status == metav1.ConditionFalse && (!unannounced || was.Message != is.Message):
		events = append(events, Event{corev1.EventTypeWarning, is.Reason, ActionVerify, clip("its addresses reach nobody: " + is.Message)})
	case is.Status == metav1.ConditionTrue && unannounced:
		events = append(events, Event{corev1.EventTypeNormal, is.Reason, ActionVerify, messageAdvertised})
	}
	return events
}

// Unannounced returns the Event of a Service that got an address of a pool which no
// advertisement covers; the problem of the pool says what to do.
func Unannounced(address netip.Addr, pool problem.Problem) Event {
	return Event{
		corev1.EventTypeWarning, pool.Reason, ActionAllocate,
		clip("nobody announces " + address.String() + " of IPAddressPool " + pool.Object.Name + ": " + pool.Message),
	}
}

// Warning returns the Event that tells of a problem.
func Warning(p problem.Problem) Event {
	return Event{corev1.EventTypeWarning, p.Reason, ActionVerify, clip(p.Message)}
}

// warnings has an Event when the condition tells of something that it did not
// tell before. fine is its reason when there is nothing to tell.
func warnings(before, after []metav1.Condition, conditionType, fine, action string) []Event {
	was, is := meta.FindStatusCondition(before, conditionType), meta.FindStatusCondition(after, conditionType)
	if is == nil || is.Reason == fine || (was != nil && was.Reason == is.Reason && was.Message == is.Message) {
		return nil
	}
	return []Event{{corev1.EventTypeWarning, is.Reason, action, clip(is.Message)}}
}

// MaxNote is how many bytes the API server takes for the note of an Event.
const MaxNote = 1024

// clip keeps a text within what the API server takes for a note; the condition
// has the whole of it.
func clip(text string) string { return problem.Clip(text, MaxNote) }

func ips(s *corev1.ServiceStatus) []string {
	var found []string
	for _, entry := range s.LoadBalancer.Ingress {
		if entry.IP != "" {
			found = append(found, entry.IP)
		}
	}
	return found
}

// less is a less b, in the order of a.
func less(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(x string) bool { return slices.Contains(b, x) })
}
