package watch

import (
	"reflect"
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type kind struct {
	example client.Object
	// read takes out of an object all that decisions need, nil for nothing.
	read func(object client.Object) any
	// apply stores what was read of an object, nil for nothing or if it is gone, and
	// reports whether anything that a decision reads has changed.
	apply func(key client.ObjectKey, value any) bool
	// touches: apply notes by itself which Service or reservation it touched.
	touches bool
	// core kinds are needed for forwarding; the others only for announcing, and optional
	// ones for neither: an API server may be too old to have them, or an older role not allow them.
	core, optional bool
	// named kinds are read by the names that are needed, each in a watch of its own: the role allows no others.
	named  bool
	synced bool
	unread unread
}

// watched completes a kind; present is false where there is no value.
func watched[O client.Object, V any](k kind, example O, read func(O) (V, bool), apply func(key client.ObjectKey, value V, present bool) bool) *kind {
	k.example = example
	k.read = func(object client.Object) any {
		if o, ok := object.(O); ok {
			if value, present := read(o); present {
				return value
			}
		}
		return nil
	}
	k.apply = func(key client.ObjectKey, value any) bool {
		v, present := value.(V)
		return apply(key, v, present)
	}
	return &k
}

// known is all that the informers keep of an object: they share its value
// with the snapshots. Whole objects would be half of the memory of a speaker.
type known struct {
	key     client.ObjectKey
	version string // tells the informers whether it is news
	value   any
}

// GetObjectMeta is how informers ask for the name and the version of an object.
func (k *known) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: k.key.Namespace, Name: k.key.Name, ResourceVersion: k.version}
}

// know is the transform of the informers: it reads an object, once.
func (w *Watch) know(o any) (any, error) {
	object, ok := o.(client.Object)
	if !ok {
		return o, nil // known already, or a note that the object is gone
	}
	i := slices.IndexFunc(w.kinds, func(k *kind) bool { return reflect.TypeOf(k.example) == reflect.TypeOf(o) })
	if i < 0 {
		return o, nil
	}
	// There are few namespaces and many objects.
	object.SetNamespace(unique.Make(object.GetNamespace()).Value())
	object.SetManagedFields(nil)
	return &known{
		key: client.ObjectKeyFromObject(object), version: object.GetResourceVersion(),
		value: w.kinds[i].read(object),
	}, nil
}
