package statuswriter

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/report"
)

// Forwarding implements report.Objects.
func (o *Objects) Forwarding(uid types.UID, f report.Forwarding) {
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

func renderForwarding(node string, uid types.UID, f report.Forwarding) *v1beta1.NodeForwarding {
	object := &v1beta1.NodeForwarding{
		ObjectMeta: metav1.ObjectMeta{
			Name:            node,
			Labels:          map[string]string{v1beta1.LabelNode: v1beta1.LabelValue(node)},
			OwnerReferences: owner(node, uid),
		},
		Spec: v1beta1.NodeForwardingSpec{Node: node},
		Status: v1beta1.NodeForwardingStatus{
			Mode: f.Mode, Tool: f.Tool,
			// As the API server stores it, to be compared with that.
			Since:    metav1.NewTime(f.Since.Truncate(time.Second)),
			Services: int32(f.Services), Ports: int32(f.Ports), ProgrammedPorts: int32(f.Programmed), Problems: int32(f.Problems),
			Conditions: slices.Clone(f.Conditions),
		},
	}
	const most = 64 // as the schema has it
	for _, network := range f.Networks[:min(len(f.Networks), most)] {
		object.Status.Networks = append(object.Status.Networks, network.String())
	}
	for i := range object.Status.Conditions {
		c := &object.Status.Conditions[i]
		c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Truncate(time.Second))
	}
	return object
}
