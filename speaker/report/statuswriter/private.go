package statuswriter

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// private writes and removes objects of a kind that no other node writes, but to mark them as stale.
type private[T client.Object] struct {
	api  client.Client
	name string // of the kind
	// with returns a copy of an object with the status of another one, or, for nil, with none.
	with func(object, of T) T
}

func (k private[T]) write(ctx context.Context, have, want T) (T, error) {
	var none T
	if any(have) == any(none) {
		have = k.with(want, none) // the API server takes none on creation
		if err := k.api.Create(ctx, have); err != nil {
			return none, fmt.Errorf("create %s %s: %w", k.name, want.GetName(), err)
		}
	}
	next := k.with(have, want)
	if err := k.api.Status().Patch(ctx, next, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{})); err != nil {
		return none, fmt.Errorf("write the status of %s %s: %w", k.name, want.GetName(), err)
	}
	return next, nil
}

func (k private[T]) remove(ctx context.Context, object T) error {
	uid := object.GetUID()
	if err := k.api.Delete(ctx, object, client.Preconditions{UID: &uid}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s: %w", k.name, object.GetName(), err)
	}
	return nil
}

func ofNode(node string) client.MatchingLabels {
	return client.MatchingLabels{v1beta1.LabelNode: v1beta1.LabelValue(node)}
}

// stored returns a time as the API server stores it, to be compared with that.
func stored(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// owner returns the reference by which an object is deleted with the Node.
func owner(node string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}}
}
