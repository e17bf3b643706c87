package watch

import (
	"net/netip"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

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
