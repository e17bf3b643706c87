package reconcile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view"
)

// keyed looks at the annotations and labels of the objects of a kind as well.
func keyed[T any, O interface {
	*T
	metav1.Object
}](o *objects, kind string, set func(client.ObjectKey, O) bool) func(client.ObjectKey, O) bool {
	return func(key client.ObjectKey, object O) bool {
		matters := set(key, object)
		of := problem.Object{Kind: kind, Namespace: key.Namespace, Name: key.Name}
		var now []problem.Problem
		if object != nil {
			now = o.requests.Stray(of, object)
		}
		if slices.Equal(now, o.strays[of]) {
			return matters
		}
		if o.strays[of] = now; len(now) == 0 {
			delete(o.strays, of)
		}
		return true
	}
}

// strays tell of keys that mean nothing; those of Services that others serve are none of ours.
func (d *decision) strays(s *snapshot) []problem.Problem {
	var told []problem.Problem
	for of, problems := range s.strays {
		if _, ours := d.outcome.Assigned.Services[view.Ref{Namespace: of.Namespace, Name: of.Name}]; ours || of.Kind != "Service" {
			told = append(told, problems...)
		}
	}
	return told
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
