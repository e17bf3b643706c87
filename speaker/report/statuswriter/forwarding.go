package statuswriter

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// Forwarding implements report.Objects.
func (o *Objects) Forwarding(uid types.UID, f v1beta1.NodeForwardingStatus) {
	o.forwarding.want([]*v1beta1.NodeForwarding{renderForwarding(o.node, uid, f)})
}

type forwardingKind struct {
	private[*v1beta1.NodeForwarding]
	node string
}

func (k forwardingKind) selects() (client.ObjectList, client.MatchingLabels) {
	return &v1beta1.NodeForwardingList{}, ofNode(k.node)
}

func (k forwardingKind) own(object *v1beta1.NodeForwarding) (*v1beta1.NodeForwarding, bool) {
	return object, object.Name == k.node
}

// compare returns immediate for what is well or not, what programs the kernel, and the networks of the node. Numbers and messages
// change with every Service.
func (forwardingKind) compare(have, want *v1beta1.NodeForwarding) urgency {
	is, to := have.Status, withForwardingStatus(have, want).Status
	switch {
	case equality.Semantic.DeepEqual(is, to):
		return unchanged
	case is.Mode != to.Mode || is.Tool != to.Tool || !is.Since.Equal(&to.Since) || !slices.Equal(is.Networks, to.Networks) ||
		!slices.EqualFunc(is.Conditions, to.Conditions, alike):
		return immediate
	}
	return throttled
}

// alike reports whether two conditions differ in their messages alone.
func alike(a, b metav1.Condition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
}

// withForwardingStatus leaves the transition time of conditions with the same status: an earlier process may
// have written it.
func withForwardingStatus(object, of *v1beta1.NodeForwarding) *v1beta1.NodeForwarding {
	next := object.DeepCopy()
	if next.Status = (v1beta1.NodeForwardingStatus{}); of != nil {
		next.Status = *of.Status.DeepCopy()
	}
	for i := range next.Status.Conditions {
		c := &next.Status.Conditions[i]
		if had := meta.FindStatusCondition(object.Status.Conditions, c.Type); had != nil && had.Status == c.Status {
			c.LastTransitionTime = had.LastTransitionTime
		}
	}
	return next
}

func renderForwarding(node string, uid types.UID, f v1beta1.NodeForwardingStatus) *v1beta1.NodeForwarding {
	object := &v1beta1.NodeForwarding{
		ObjectMeta: metav1.ObjectMeta{
			Name:            node,
			Labels:          map[string]string{v1beta1.LabelNode: v1beta1.LabelValue(node)},
			OwnerReferences: owner(node, uid),
		},
		Spec:   v1beta1.NodeForwardingSpec{Node: node},
		Status: *f.DeepCopy(),
	}
	object.Status.Since = stored(f.Since.Time)
	for i, c := range f.Conditions {
		object.Status.Conditions[i].LastTransitionTime = stored(c.LastTransitionTime.Time)
	}
	return object
}
