package watch

import (
	"net/netip"
	"reflect"
	"slices"
	"time"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
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

func whole[O any](object O) (O, bool) { return object, true }

func readService(s *corev1.Service) (*view.Service, bool) {
	v := fromkube.Service(s)
	return v, v != nil
}

// slice is what is read of an EndpointSlice.
type slice struct {
	service   view.Ref
	endpoints []view.Endpoint // nil: it is no Service's
	of        view.EndpointsOf
	trigger   time.Time // of the newest change, the zero time if the slice does not say
	unread    []problem.Problem
}

func readSlice(s *discoveryv1.EndpointSlice) (slice, bool) {
	service, endpoints, unread := fromkube.EndpointSlice(s)
	of, trigger := fromkube.Trigger(s)
	return slice{service, endpoints, of, trigger, unread}, endpoints != nil || len(unread) > 0
}

// readReservation keeps of an IPReservation what it holds.
func readReservation(r *v1beta1.IPReservation) (*view.Reservation, bool) {
	v := fromkube.Reservation(r)
	return &view.Reservation{Ref: v.Ref, Held: v.Held}, len(v.Held) > 0
}

// readSecret keeps of a Secret the two values that are read here: the
// namespace holds other Secrets, too, such as Helm's releases.
func readSecret(s *corev1.Secret) (*corev1.Secret, bool) {
	slim := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}, Data: map[string][]byte{}}
	for _, key := range []string{v1beta1.HelloSecretKey, corev1.BasicAuthPasswordKey} {
		if value, ok := s.Data[key]; ok {
			slim.Data[key] = value
		}
	}
	return slim, true
}

// readServiceCIDR keeps the ranges of one that is being deleted: it goes when no Service
// has an address of them any more.
func readServiceCIDR(s *networkingv1.ServiceCIDR) ([]netip.Prefix, bool) {
	return fromkube.ServiceRanges(s), true
}

// readDaemonSet keeps of a DaemonSet that it exists and is not being deleted.
func readDaemonSet(d *appsv1.DaemonSet) (struct{}, bool) {
	return struct{}{}, d.DeletionTimestamp.IsZero()
}
