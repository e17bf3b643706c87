package standing

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/report"
)

// Forwardings keeps the NodeForwarding of one node.
type Forwardings struct {
	*Keeper[*v1beta1.NodeForwarding]
	node string
}

// NewForwardings makes a keeper for a node. Nothing is written before Run, and before Tell.
func NewForwardings(node string, api OwnAPI, log *slog.Logger) *Forwardings {
	kind := forwardingKind{own[*v1beta1.NodeForwarding]{api, "NodeForwarding", withForwardingStatus}, node}
	return &Forwardings{newKeeper(kind, "NodeForwarding", log), node}
}

// Tell takes in how the forwarding of the node does. uid is that of the Node.
func (f *Forwardings) Tell(uid types.UID, is report.Forwarding) {
	f.want([]*v1beta1.NodeForwarding{renderForwarding(f.node, uid, is)})
}

// forwardingKind are NodeForwardings.
type forwardingKind struct {
	own[*v1beta1.NodeForwarding]
	node string
}

func (k forwardingKind) list(ctx context.Context) ([]*v1beta1.NodeForwarding, error) {
	var list v1beta1.NodeForwardingList
	err := k.api.List(ctx, &list, ofNode(k.node))
	var found []*v1beta1.NodeForwarding
	for _, object := range list.Items {
		if object.Name == k.node {
			found = append(found, &object)
		}
	}
	return found, err
}

// compare: what is well and what is not is news, and so is what the kernel is told by.
// Numbers and words change with every Service.
func (forwardingKind) compare(have, want *v1beta1.NodeForwarding) haste {
	is, to := have.Status, withForwardingStatus(have, want).Status
	switch {
	case equality.Semantic.DeepEqual(is, to):
		return never
	case is.Mode != to.Mode || is.Tool != to.Tool || !is.Since.Equal(&to.Since) || !slices.EqualFunc(is.Conditions, to.Conditions, alike):
		return now
	}
	return paused
}

// alike tells whether two conditions differ in their words alone.
func alike(a, b metav1.Condition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
}

// withForwardingStatus leaves to a condition the time since when it is what it is: an
// earlier process may have told it.
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

// renderForwarding makes the object of the node.
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
	for i := range object.Status.Conditions {
		c := &object.Status.Conditions[i]
		c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Truncate(time.Second))
	}
	return object
}
