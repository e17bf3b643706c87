package statuswriter

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/report"
)

// Addresses implements report.Objects.
func (o *Objects) Addresses(uid types.UID, addresses map[netip.Addr]report.Address) {
	objects := make([]*v1beta1.L2Address, 0, len(addresses))
	for address, how := range addresses {
		objects = append(objects, renderAddress(o.node, uid, address, how))
	}
	o.addresses.want(objects)
}

// addressKind has the L2Addresses of one node. An address has one object, which the node that answers now
// takes over from the one that did before.
type addressKind struct {
	node string
	api  client.Client
}

func (k addressKind) selects() (client.ObjectList, client.MatchingLabels) {
	return &v1beta1.L2AddressList{}, ofNode(k.node)
}

func (addressKind) own(object *v1beta1.L2Address) (*v1beta1.L2Address, bool) {
	object.Status.Conditions = slices.DeleteFunc(object.Status.Conditions, isDoubt) // which is another node's
	return object, true
}

// compare returns immediate for another node that answers and for a contest. The runner-up changes for many
// addresses at once when a node comes or goes.
func (addressKind) compare(have, want *v1beta1.L2Address) urgency {
	is, to := have.Status, want.Status
	switch {
	case equality.Semantic.DeepEqual(is, to):
		return unchanged
	case is.Node != to.Node || !is.Since.Equal(&to.Since) || !slices.Equal(is.Interfaces, to.Interfaces) || summary(have) != summary(want):
		return immediate
	}
	return throttled
}

func summary(object *v1beta1.L2Address) string {
	var text strings.Builder
	for _, c := range object.Status.Conditions {
		fmt.Fprintf(&text, "%s=%s ", c.Type, c.Status)
	}
	return text.String()
}

// fieldOwner is the same for all nodes, so that each takes over all that another has written.
const fieldOwner = client.FieldOwner("fairlead-speaker")

// write sets the label and the owner before the status: a node that answers anew may find an object that
// another node, which answered meanwhile, has written.
func (k addressKind) write(ctx context.Context, have, want *v1beta1.L2Address) (*v1beta1.L2Address, error) {
	if have == nil || !have.Status.Since.Equal(&want.Status.Since) {
		bare := want.DeepCopy()
		bare.Status = v1beta1.L2AddressStatus{}
		object, err := applicable(bare)
		if err == nil {
			err = k.api.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership)
		}
		if err != nil {
			return nil, fmt.Errorf("write L2Address %s: %w", want.Name, err)
		}
	}
	object, err := applyStatus(ctx, k.api, want, fieldOwner)
	if err != nil {
		return nil, fmt.Errorf("write the status of L2Address %s: %w", want.Name, err)
	}
	written := want.DeepCopy()
	written.UID, written.ResourceVersion = object.GetUID(), object.GetResourceVersion()
	return written, nil
}

// applyStatus applies the status of an object, and nothing else of it.
func applyStatus(ctx context.Context, api client.Client, object *v1beta1.L2Address, owner client.FieldOwner) (*unstructured.Unstructured, error) {
	fields, err := applicable(&v1beta1.L2Address{TypeMeta: object.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: object.Name}, Status: object.Status})
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(fields.Object, "spec")
	return fields, api.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(fields), owner, client.ForceOwnership)
}

func applicable(object *v1beta1.L2Address) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: fields}, nil
}

// removals bounds how often an object is read again that others write meanwhile.
const removals = 5

// remove leaves an object that another node has taken over meanwhile. One to which another node has only
// added its doubts is still this node's.
func (k addressKind) remove(ctx context.Context, object *v1beta1.L2Address) error {
	var err error
	for range removals {
		precondition := client.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion}
		err = k.api.Delete(ctx, object, precondition)
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("delete L2Address %s: %w", object.Name, err)
		}
		var list v1beta1.L2AddressList
		if err := k.api.List(ctx, &list, ofNode(k.node), client.MatchingFields{metav1.ObjectNameField: object.Name}); err != nil {
			return fmt.Errorf("look at L2Address %s again: %w", object.Name, err)
		}
		if len(list.Items) == 0 || list.Items[0].UID != object.UID || list.Items[0].Status.Node != k.node {
			return nil
		}
		object = &list.Items[0]
	}
	return fmt.Errorf("delete L2Address %s: it changes too often: %w", object.Name, err)
}

func renderAddress(node string, uid types.UID, address netip.Addr, a report.Address) *v1beta1.L2Address {
	found := func(kind string, f report.Finding) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: stored(f.Since), Reason: f.Reason, Message: f.Message}
	}
	answering := metav1.Condition{
		Type: v1beta1.ConditionAnswering, Status: metav1.ConditionTrue, LastTransitionTime: stored(a.Since),
		Reason: v1beta1.ReasonFirst, Message: fmt.Sprintf("node %s is the first of the candidates", node),
	}
	switch {
	case len(a.Preferred) > 0:
		answering.Reason, answering.Message = v1beta1.ReasonNotPreempted, fmt.Sprintf("node %s keeps the address, as an L2Advertisement has preempt: Never, "+
			"though %s comes before it and could answer", node, a.Preferred[0])
	case len(a.Dead)+len(a.Unable)+len(a.Distant)+len(a.Damped) > 0:
		answering.Reason, answering.Message = v1beta1.ReasonSuccessor, succession(node, a.Ownership)
	}
	object := &v1beta1.L2Address{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "L2Address"},
		ObjectMeta: metav1.ObjectMeta{
			Name:            v1beta1.L2AddressName(address),
			Labels:          map[string]string{v1beta1.LabelNode: v1beta1.LabelValue(node)},
			OwnerReferences: owner(node, uid),
		},
		Spec: v1beta1.L2AddressSpec{Address: address.String()},
		Status: v1beta1.L2AddressStatus{
			Node: node, Interfaces: a.Interfaces, RunnerUp: a.Next, Services: a.Services, Since: stored(a.Since),
		},
	}
	conditions := []metav1.Condition{answering}
	if c := a.Contest; c != nil {
		contested := found(v1beta1.ConditionContested, report.ContestOf(node, address, *c))
		if c.Withheld {
			object.Status.Since = metav1.Time{}
			conditions[0] = contested
			conditions[0].Type, conditions[0].Status = v1beta1.ConditionAnswering, metav1.ConditionFalse
		}
		conditions = append(conditions, contested)
	}
	if a.Obstruction != nil {
		conditions = append(conditions, found(v1beta1.ConditionObstructed, *a.Obstruction))
	}
	object.Status.Conditions = conditions
	return object
}

// succession says why none of the candidates before this node answers.
func succession(node string, o api.Ownership) string {
	var before []string
	for _, dead := range o.Dead {
		before = append(before, dead+" is not alive")
	}
	for _, unable := range o.Unable {
		before = append(before, unable+" is not able to answer")
	}
	for _, distant := range o.Distant {
		before = append(before, distant+" has no subnet with it")
	}
	for _, damped := range o.Damped {
		before = append(before, damped+" fell silent again and again")
	}
	const most = 4
	if more := len(before) - most; more > 0 {
		before = append(before[:most], fmt.Sprintf("nor are %d others", more))
	}
	return fmt.Sprintf("node %s is the next of the candidates: %s", node, strings.Join(before, ", "))
}
