package reconcile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/view"
)

// TestStraysCostNothingAtRest: Services and IPReservations with keys that mean nothing are told so once and counted, and no
// pass looks at them again.
func TestStraysCostNothingAtRest(t *testing.T) {
	t.Parallel()
	o, last := filled(t, 100, nil), &decision{}
	pass(t, o, &last)
	others := len(last.problems)
	marked := map[view.Ref]*corev1.Service{}
	for ref, s := range o.services {
		marked[ref] = s.DeepCopy()
		marked[ref].Annotations = map[string]string{"fairlead.dev/pools": "p"}
	}
	for _, s := range marked {
		o.see(s)
	}
	wrote := pass(t, o, &last)
	for object, w := range wrote {
		c := meta.FindStatusCondition(w.next.(*corev1.Service).Status.Conditions, v1beta1.ConditionAllocated)
		if c.Reason != "UnknownAnnotation" || len(w.events) != 1 {
			t.Errorf("%s is told %v by %v", object, c, w.events)
		}
	}
	if len(wrote) != 100 || last.straying != 100 || len(last.problems) != others {
		t.Errorf("%d are told, %d counted, and %d problems are for all passes", len(wrote), last.straying, len(last.problems))
	}
	pass(t, o, &last)
	if wrote = pass(t, o, &last); len(wrote) > 0 || len(last.outcome.Looked) > 0 {
		t.Errorf("at rest %d statuses are written, and %d Services looked at", len(wrote), len(last.outcome.Looked))
	}
	for _, s := range o.services {
		mended := s.DeepCopy()
		mended.Annotations = nil
		o.see(mended)
		break
	}
	if wrote = pass(t, o, &last); len(wrote) != 1 || last.straying != 99 {
		t.Errorf("once one is corrected, %d are told and %d counted", len(wrote), last.straying)
	}
}
