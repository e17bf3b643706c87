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

// read is a value and what was wrong with its object.
type read[T any] struct {
	value    T
	problems []problem.Problem
}

// reading reads objects of one kind of ours.
func reading[O, V any](from func(O) (V, []problem.Problem)) func(O) (read[V], bool) {
	return func(object O) (read[V], bool) {
		value, problems := from(object)
		return read[V]{value, problems}, true
	}
}

// readService leaves out what only the controller reads and, of Services that nobody
// announces, what only announcing does: a cluster has thousands of these, and labels are
// most of each.
func readService(s *corev1.Service) (*view.Service, bool) {
	v := fromkube.Service(s)
	if v == nil {
		return nil, false
	}
	v.Created, v.Ingress, v.Families, v.FamilyPolicy, v.Request = time.Time{}, nil, nil, "", view.Request{}
	if v.Type != view.LoadBalancer {
		v.UID, v.Labels = "", nil
	}
	return v, true
}

// slice is what is read of an EndpointSlice.
type slice struct {
	service   view.Ref
	endpoints []view.Endpoint // never nil
	of        view.EndpointsOf
	trigger   time.Time // of the newest change, the zero time if the slice does not say
	ours      bool      // it has endpoints of a Service
	unread    []problem.Problem
}

func readSlice(s *discoveryv1.EndpointSlice) (slice, bool) {
	service, endpoints, ours := fromkube.EndpointSlice(s)
	of, trigger := fromkube.Trigger(s)
	unread := fromkube.UnreadEndpoints(s)
	return slice{service, endpoints, of, trigger, ours, unread}, ours || len(unread) > 0
}

// readSecret forgets what is in a Secret but for the two things that we read: the
// namespace holds other people's Secrets, too, such as Helm's releases.
func readSecret(s *corev1.Secret) (*corev1.Secret, bool) {
	slim := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}, Data: map[string][]byte{}}
	for _, key := range []string{v1beta1.HelloSecretKey, corev1.BasicAuthPasswordKey} {
		if value, ok := s.Data[key]; ok {
			slim.Data[key] = value
		}
	}
	return slim, true
}

// readBGPPeer leaves out the status, which is ours. Of two BGPPeers for one router the older one
// counts, here as in the controller.
func readBGPPeer(p *v1beta1.BGPPeer) (*v1beta1.BGPPeer, bool) {
	return &v1beta1.BGPPeer{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID, CreationTimestamp: p.CreationTimestamp}, Spec: p.Spec,
	}, true
}

// readServiceCIDR keeps the ranges of one that is being deleted: it goes when no Service
// has an address of them any more.
func readServiceCIDR(s *networkingv1.ServiceCIDR) ([]netip.Prefix, bool) {
	return fromkube.ServiceRanges(s), true
}

// readDaemonSet leaves out all of one but that it is there to stay.
func readDaemonSet(d *appsv1.DaemonSet) (struct{}, bool) {
	return struct{}{}, d.DeletionTimestamp.IsZero()
}
