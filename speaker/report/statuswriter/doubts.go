package statuswriter

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/report"
)

// Doubts implements report.Objects. An address for which no node can answer has no object.
func (o *Objects) Doubts(doubts map[netip.Addr]api.Doubt) {
	var objects []*v1beta1.L2Address
	for address, doubt := range doubts {
		if doubt.Owner != "" {
			objects = append(objects, renderDoubt(o.node, address, doubt))
		}
	}
	o.doubts.want(objects)
}

// doubtKind has the parts of L2Addresses that a node writes in those of others, for which it would answer next:
// the condition Doubted, and a label that names the node. By that a new process finds what it has to take back, and
// the StaleMarker the doubts of a dead node. As objects they have nothing else, and belong to no Node. They have a
// field manager of their own, so that neither node writes the fields of the other.
type doubtKind struct {
	node string
	api  client.Client
}

// doubtOwner is the same for all nodes, so that the next node with a doubt replaces the doubt that is there.
const doubtOwner = client.FieldOwner("fairlead-patrol")

func isDoubt(c metav1.Condition) bool { return c.Type == v1beta1.ConditionDoubted }

// part returns what of an object is this kind's.
func part(name string, labels map[string]string, conditions []metav1.Condition) *v1beta1.L2Address {
	object := &v1beta1.L2Address{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "L2Address"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	if by, is := labels[v1beta1.LabelDoubtedBy]; is {
		object.Labels = map[string]string{v1beta1.LabelDoubtedBy: by}
	}
	for _, c := range conditions {
		if isDoubt(c) {
			object.Status.Conditions = append(object.Status.Conditions, c)
		}
	}
	return object
}

func renderDoubt(node string, address netip.Addr, d api.Doubt) *v1beta1.L2Address {
	f := report.DoubtOf(node, address, d)
	return part(v1beta1.L2AddressName(address), map[string]string{v1beta1.LabelDoubtedBy: v1beta1.LabelValue(node)}, []metav1.Condition{{
		Type: v1beta1.ConditionDoubted, Status: metav1.ConditionTrue, LastTransitionTime: stored(f.Since),
		Reason: f.Reason, Message: f.Message,
	}})
}

func doubtedBy(node string) client.MatchingLabels {
	return client.MatchingLabels{v1beta1.LabelDoubtedBy: v1beta1.LabelValue(node)}
}

func (k doubtKind) selects() (client.ObjectList, client.MatchingLabels) {
	return &v1beta1.L2AddressList{}, doubtedBy(k.node)
}

func (doubtKind) own(object *v1beta1.L2Address) (*v1beta1.L2Address, bool) {
	return part(object.Name, object.Labels, object.Status.Conditions), true
}

// compare returns immediate for another reason; the message changes with the station that answers.
func (doubtKind) compare(have, want *v1beta1.L2Address) urgency {
	switch {
	case equality.Semantic.DeepEqual(have.Status, want.Status) && equality.Semantic.DeepEqual(have.Labels, want.Labels):
		return unchanged
	case len(have.Status.Conditions) == 1 && have.Status.Conditions[0].Reason != want.Status.Conditions[0].Reason:
		return immediate
	}
	return throttled
}

// write sets the label before the condition, so that there is no doubt that cannot be found again. To an
// object that is not there nothing is written; it is looked for again.
func (k doubtKind) write(ctx context.Context, have, want *v1beta1.L2Address) (*v1beta1.L2Address, error) {
	var err error
	if have == nil || len(have.Labels) == 0 {
		by := want.Labels[v1beta1.LabelDoubtedBy]
		err = label(ctx, k.api, want.Name, &by)
	}
	if err == nil {
		_, err = applyStatus(ctx, k.api, want, doubtOwner)
	}
	switch {
	case apierrors.IsNotFound(err):
		return part(want.Name, nil, nil), nil
	case err != nil:
		return nil, fmt.Errorf("write the doubts about L2Address %s: %w", want.Name, err)
	}
	return want, nil
}

func (k doubtKind) remove(ctx context.Context, object *v1beta1.L2Address) error {
	_, err := applyStatus(ctx, k.api, part(object.Name, nil, nil), doubtOwner) // without the condition that this owner had
	if err == nil {
		err = label(ctx, k.api, object.Name, nil)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take back the doubts about L2Address %s: %w", object.Name, err)
	}
	return nil
}

// label names in an object the node that has doubts; nil: none has. It makes no object.
func label(ctx context.Context, api client.Client, name string, by *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{v1beta1.LabelDoubtedBy: by}}})
	if err != nil {
		return err
	}
	object := &v1beta1.L2Address{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return api.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), doubtOwner)
}
