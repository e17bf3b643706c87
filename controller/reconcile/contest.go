package reconcile

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonStatusContested is on a Service whose status something else writes as well, again
// and again.
const ReasonStatusContested = "StatusContested"

const (
	// firstPause and lastPause bound the wait before a write that only undoes what another
	// program wrote. The first such write does not wait.
	firstPause, lastPause = time.Second, time.Minute
	// quiet is how long no other program writes before a contest is over.
	quiet = 5 * time.Minute
	// fewest is how many such writes make a contest: one may be a slip.
	fewest = 3
	// remembered is how many texts of each kind a contest knows of.
	remembered = 16
)

// contest is what was written lately to one status, and how often another program wrote over
// it.
type contest struct {
	wrote   []string // what the status was made to say, the newest last
	told    []status.Event
	at      time.Time // of the newest write
	rounds  int
	undone  time.Time // when the last round began
	version string    // with which it did
	due     time.Time // what is wanted is not to be written before
}

// contests are those of all objects that were written to lately. To ask which last costs those that had a round.
type contests struct {
	of     map[problem.Object]*contest
	fought map[problem.Object]struct{}
	swept  time.Time // when those that have been quiet were forgotten
}

// judge decides when the write may be sent. A write that only restores what another program
// wrote over waits, and the longer the more often that happened: two programs that each want
// the last word would go on as fast as they can. A write with news does not wait.
func (c *contests) judge(object problem.Object, w write, now time.Time) {
	k := c.of[object]
	if k == nil {
		return
	}
	switch wants := says(w.next); {
	case wants == "" || !k.overwritten(w) || !slices.Contains(k.wrote, wants):
		k.due = time.Time{}
		return
	case w.base.GetResourceVersion() == k.version || now.Before(k.due):
		return // of this round already
	case now.Sub(k.undone) >= quiet:
		k.rounds = 0
	}
	k.rounds++
	c.fought[object] = struct{}{}
	k.version, k.undone, k.due = w.base.GetResourceVersion(), now, now
	if k.rounds > 1 {
		k.due = now.Add(min(firstPause<<min(k.rounds-2, 16), lastPause))
	}
}

// due is when what is wanted of the object may be written; the zero time for at once.
func (c *contests) due(object problem.Object) time.Time {
	if k := c.of[object]; k != nil {
		return k.due
	}
	return time.Time{}
}

// overwritten reports whether the status that is to be changed is not what was written last.
func (k *contest) overwritten(w write) bool { return says(w.base) != k.wrote[len(k.wrote)-1] }

// written notes that the write has succeeded, and returns its Events: of one that restores a
// status, those that were not sent before.
func (c *contests) written(object problem.Object, w write, now time.Time) []status.Event {
	text := says(w.next)
	if text == "" {
		return w.events
	}
	k, events := c.of[object], w.events
	switch {
	case k == nil:
		k = &contest{}
		c.of[object] = k
	case k.overwritten(w):
		events = slices.DeleteFunc(slices.Clone(events), func(e status.Event) bool { return slices.Contains(k.told, e) })
	}
	k.wrote, k.at = remember(k.wrote, text), now
	for _, e := range events {
		k.told = remember(k.told, e)
	}
	return events
}

// remember has what is newest at the end, once.
func remember[T comparable](list []T, newest T) []T {
	list = append(slices.DeleteFunc(list, func(other T) bool { return other == newest }), newest)
	return list[max(0, len(list)-remembered):]
}

// lasting are the objects whose status is contested, and until when if nothing happens. Now and then it
// forgets those that have been quiet.
func (c *contests) lasting(now time.Time) map[problem.Object]time.Time {
	found := map[problem.Object]time.Time{}
	for object := range c.fought {
		k := c.of[object]
		if over := k.undone.Add(quiet); k.rounds >= fewest && now.Before(over) {
			found[object] = over
		}
	}
	if now.Sub(c.swept) >= quiet {
		c.swept = now
		maps.DeleteFunc(c.of, func(object problem.Object, k *contest) bool {
			forgotten := now.Sub(k.at) >= quiet && now.Sub(k.undone) >= quiet
			if forgotten {
				delete(c.fought, object)
			}
			return forgotten
		})
	}
	return found
}

// says is the part of a status that is written here, but for times; "" for objects whose
// status only Fairlead writes.
func says(object client.Object) string {
	s, ok := object.(*corev1.Service)
	if !ok || s == nil {
		return ""
	}
	allocated := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
	if allocated != nil {
		allocated = allocated.DeepCopy()
		allocated.LastTransitionTime, allocated.ObservedGeneration = metav1.Time{}, 0
	}
	text, err := json.Marshal([]any{s.UID, s.Status.LoadBalancer.Ingress, allocated})
	if err != nil {
		return ""
	}
	return string(text)
}

// contests returns a problem of each Service that gets addresses here and whose status is contested.
func (d *decision) contests() []problem.Problem {
	var problems []problem.Problem
	for object := range d.contested {
		if _, ours := d.outcome.Assigned.Services[view.Ref{Namespace: object.Namespace, Name: object.Name}]; !ours {
			continue
		}
		problems = append(problems, problem.Advice(object, ReasonStatusContested,
			"something else writes the status of this Service, too, and each undoes what the other one writes: give the Service a "+
				"spec.loadBalancerClass that only one of the two serves, or turn the other one off; Fairlead waits up to a minute before it writes again"))
	}
	return problems
}
