package standing

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/report"
)

// DoubtAPI is what is asked of the API server to note doubts in the L2Addresses of other nodes.
type DoubtAPI interface {
	List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
	patcher
	Status() client.SubResourceWriter
}

// Doubts keeps the condition Doubted of L2Addresses of other nodes, of which this one would be the
// next. The field manager is one of its own, so that neither node writes what is the other's. A
// label tells who noted it: a process that begins anew finds what it has to take back, and the
// witness what is left of a node that is not heard any more.
type Doubts struct {
	*Keeper[*v1beta1.L2Address]
	kind doubtKind
}

// NewDoubts makes a keeper for a node. Nothing is written before Run, and before Tell.
func NewDoubts(node string, api DoubtAPI, log *slog.Logger) *Doubts {
	kind := doubtKind{node, api}
	return &Doubts{newKeeper(kind, "doubts about L2Addresses", log), kind}
}

// Tell takes in all doubts of the node. An address that nobody can answer for has no object.
func (d *Doubts) Tell(doubts map[netip.Addr]report.Doubt) {
	var objects []*v1beta1.L2Address
	for address, doubt := range doubts {
		if doubt.Owner != "" {
			objects = append(objects, d.kind.render(address, doubt))
		}
	}
	d.want(objects)
}

// doubtKind are the parts of L2Addresses that a node notes in those of others: the label and the
// condition. As objects they have nothing else, and belong to no Node.
type doubtKind struct {
	node string
	api  DoubtAPI
}

// doubtOwner is one for all nodes, so that the next one who doubts replaces what is there.
const doubtOwner = client.FieldOwner("fairlead-patrol")

func isDoubt(c metav1.Condition) bool { return c.Type == v1beta1.ConditionDoubted }

// part is what of an object is this kind's.
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

func (k doubtKind) render(address netip.Addr, d report.Doubt) *v1beta1.L2Address {
	return part(v1beta1.L2AddressName(address), map[string]string{v1beta1.LabelDoubtedBy: v1beta1.LabelValue(k.node)}, []metav1.Condition{{
		Type: v1beta1.ConditionDoubted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(d.Since.Truncate(time.Second)),
		Reason: d.Reason(), Message: d.Message(k.node, address),
	}})
}

func doubtedBy(node string) client.MatchingLabels {
	return client.MatchingLabels{v1beta1.LabelDoubtedBy: v1beta1.LabelValue(node)}
}

func (k doubtKind) list(ctx context.Context) ([]*v1beta1.L2Address, error) {
	var list v1beta1.L2AddressList
	err := k.api.List(ctx, &list, doubtedBy(k.node))
	found := make([]*v1beta1.L2Address, 0, len(list.Items))
	for _, object := range list.Items {
		found = append(found, part(object.Name, object.Labels, object.Status.Conditions))
	}
	return found, err
}

// compare: the words change with whoever answers, and what it is about does not.
func (doubtKind) compare(have, want *v1beta1.L2Address) haste {
	switch {
	case equality.Semantic.DeepEqual(have.Status, want.Status) && equality.Semantic.DeepEqual(have.Labels, want.Labels):
		return never
	case len(have.Status.Conditions) == 1 && have.Status.Conditions[0].Reason != want.Status.Conditions[0].Reason:
		return now
	}
	return paused
}

// write says who doubts before it says what, so that there is no doubt that nobody finds again. Of
// an object that is not there yet, or any more, nothing is noted; it is looked for again.
func (k doubtKind) write(ctx context.Context, have, want *v1beta1.L2Address) (*v1beta1.L2Address, error) {
	if have == nil || len(have.Labels) == 0 {
		by := want.Labels[v1beta1.LabelDoubtedBy]
		err := label(ctx, k.api, want.Name, &by)
		if apierrors.IsNotFound(err) {
			return part(want.Name, nil, nil), nil
		}
		if err != nil {
			return nil, fmt.Errorf("label L2Address %s: %w", want.Name, err)
		}
	}
	if err := k.apply(ctx, want); err != nil {
		if apierrors.IsNotFound(err) {
			return part(want.Name, nil, nil), nil
		}
		return nil, fmt.Errorf("write the doubts about L2Address %s: %w", want.Name, err)
	}
	return want, nil
}

// apply makes the condition that of the part, if it has one, and takes it back otherwise.
func (k doubtKind) apply(ctx context.Context, object *v1beta1.L2Address) error {
	bare := object.DeepCopy()
	bare.Labels = nil
	fields, err := applicable(bare)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(fields.Object, "spec")
	return k.api.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(fields), doubtOwner, client.ForceOwnership)
}

func (k doubtKind) remove(ctx context.Context, object *v1beta1.L2Address) error {
	err := k.apply(ctx, part(object.Name, nil, nil))
	if err == nil {
		err = label(ctx, k.api, object.Name, nil)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take back the doubts about L2Address %s: %w", object.Name, err)
	}
	return nil
}

// patcher changes what there is.
type patcher interface {
	Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error
}

// label says in an object which node has doubts; nil: none has. It makes no object.
func label(ctx context.Context, api patcher, name string, by *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{v1beta1.LabelDoubtedBy: by}}})
	if err != nil {
		return err
	}
	object := &v1beta1.L2Address{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return api.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), doubtOwner)
}
