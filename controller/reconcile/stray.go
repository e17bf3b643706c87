package reconcile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
)

// keyed looks at the annotations and labels of the objects of a cluster-scoped kind as well.
func keyed[T any, O interface {
	*T
	metav1.Object
}](o *objects, kind string, set func(client.ObjectKey, O) bool) func(client.ObjectKey, O) bool {
	return func(key client.ObjectKey, object O) bool {
		matters := set(key, object)
		of := problem.Object{Kind: kind, Name: key.Name}
		before := o.strays[of]
		delete(o.strays, of)
		if object != nil {
			if now := o.requests.Stray(of, object); now != nil {
				o.strays[of] = *now
			}
		}
		return matters || o.strays[of] != before
	}
}

// withStray adds what is to be told of the keys of an object of a namespace. Only its own status tells that, so that a pass
// costs nothing for the many that a user may make.
func withStray(problems []problem.Problem, stray *problem.Problem) []problem.Problem {
	if stray == nil {
		return problems
	}
	return append(slices.Clone(problems), *stray)
}

// countStrays counts the Services with such keys, of ours.
func (d *decision) countStrays(s *snapshot) (n int) {
	for ref := range s.straying {
		if _, ours := d.outcome.Assigned.Services[ref]; ours {
			n++
		}
	}
	return n
}

// event tells of a problem by an Event alone, on objects of Kubernetes that have no condition of ours.
func (l *Loop) event(p problem.Problem) {
	if p.Object.Kind != "Node" && p.Object.Kind != "Namespace" {
		return
	}
	about := &corev1.ObjectReference{APIVersion: "v1", Kind: p.Object.Kind, Name: p.Object.Name, UID: types.UID(p.Object.Name)} // as kubectl describe looks for it
	e := status.Warning(p)
	l.Events.Eventf(about, nil, e.Type, e.Reason, e.Action, "%s", e.Note)
}
