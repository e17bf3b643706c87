package reconcile

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// CacheOptions says what the informers hold: of the given namespace Secrets, without their values, and the one
// Role; and nothing that is not read.
func CacheOptions(namespace, role string) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{namespace: {Transform: forgetValues}}},
			&rbacv1.Role{}: {Namespaces: map[string]cache.Config{
				namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, role)},
			}},
			&corev1.Service{}:            {Transform: brief},
			&discoveryv1.EndpointSlice{}: {Transform: slim},
			&corev1.Node{}:               {Transform: whereabouts},
			&v1beta1.NodeForwarding{}:    {Transform: networks},
			&v1beta1.L2Address{}:         {Transform: answering},
		},
	}
}

// forgetValues keeps of a Secret which of its keys have a value: nothing here needs more.
func forgetValues(object any) (any, error) {
	if s, ok := object.(*corev1.Secret); ok {
		s.ManagedFields, s.Annotations, s.StringData = nil, nil, nil
		for key, value := range s.Data {
			if len(value) > 0 {
				s.Data[key] = []byte{'x'}
			}
		}
	}
	return object, nil
}

// whereabouts keeps of a Node its names, labels, annotations of ours, taints, addresses and podCIDRs, and
// whether it is ready and has a network. The rest changes all the time and does not matter here.
func whereabouts(object any) (any, error) {
	if n, ok := object.(*corev1.Node); ok {
		n.ManagedFields, n.Annotations = nil, requests(n.Annotations)
		n.Spec = corev1.NodeSpec{Taints: n.Spec.Taints, PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs}
		status := corev1.NodeStatus{Addresses: n.Status.Addresses}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady || c.Type == corev1.NodeNetworkUnavailable {
				status.Conditions = append(status.Conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status})
			}
		}
		n.Status = status
	}
	return object, nil
}

// networks keeps of a NodeForwarding which networks the node is on.
func networks(object any) (any, error) {
	if f, ok := object.(*v1beta1.NodeForwarding); ok {
		f.ManagedFields, f.Labels, f.Annotations, f.OwnerReferences = nil, nil, nil, nil
		f.Status = v1beta1.NodeForwardingStatus{Networks: f.Status.Networks}
	}
	return object, nil
}

// answering keeps of an L2Address why no node answers for it.
func answering(object any) (any, error) {
	if a, ok := object.(*v1beta1.L2Address); ok {
		a.ManagedFields, a.Labels, a.Annotations, a.OwnerReferences = nil, nil, nil, nil
		var status v1beta1.L2AddressStatus
		if address, _ := fromkube.Withheld(a); address.IsValid() {
			status.Conditions = a.Status.Conditions
		}
		a.Status = status
	}
	return object, nil
}

// watchAll lets the informers tell the mirror of every change. The result says
// when it has been told of everything that was there at the beginning.
func watchAll(ctx context.Context, informers cache.Informers, o *objects) ([]toolscache.DoneChecker, error) {
	namespaces := &metav1.PartialObjectMetadata{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	var synced []toolscache.DoneChecker
	for _, w := range []func() (toolscache.DoneChecker, error){
		watched(ctx, informers, o, &corev1.Service{}, o.setService),
		watched(ctx, informers, o, &v1beta1.IPReservation{}, o.setReservation),
		watched(ctx, informers, o, &v1beta1.IPAddressPool{}, keyed(o, "IPAddressPool", named(o, &o.Pools))),
		watched(ctx, informers, o, &v1beta1.L2Advertisement{}, keyed(o, "L2Advertisement", named(o, &o.L2Advertisements))),
		watched(ctx, informers, o, &v1beta1.BGPAdvertisement{}, keyed(o, "BGPAdvertisement", o.setBGPAdvertisement)),
		watched(ctx, informers, o, &v1beta1.BGPPeer{}, keyed(o, "BGPPeer", named(o, &o.BGPPeers))),
		watched(ctx, informers, o, &v1beta1.BFDProfile{}, keyed(o, "BFDProfile", named(o, &o.BFDProfiles))),
		watched(ctx, informers, o, &v1beta1.Community{}, keyed(o, "Community", named(o, &o.Communities))),
		watched(ctx, informers, o, &v1beta1.BGPSession{}, o.setBGPSession),
		watched(ctx, informers, o, &v1beta1.L2Address{}, o.setL2Address),
		watched(ctx, informers, o, &corev1.Secret{}, o.setSecret),
		watched(ctx, informers, o, &discoveryv1.EndpointSlice{}, o.setSlice),
		watched(ctx, informers, o, &corev1.Node{}, keyed(o, "Node", o.setNode)),
		watched(ctx, informers, o, &v1beta1.NodeForwarding{}, o.setNodeForwarding),
		watched(ctx, informers, o, namespaces, keyed(o, "Namespace", o.setNamespace)),
		watched(ctx, informers, o, &networkingv1.ServiceCIDR{}, o.setServiceCIDR),
	} {
		s, err := w()
		switch {
		case optional(err):
			continue
		case err != nil:
			return nil, err
		}
		synced = append(synced, s)
	}
	return synced, nil
}

// optional tells the error of a kind that older API servers do not know: ServiceCIDR is
// of Kubernetes 1.33. Of our own kinds, it is one.
func optional(err error) bool {
	var missing *meta.NoKindMatchError
	return errors.As(err, &missing) && missing.GroupKind.Group == networkingv1.GroupName
}

func watched[T any, O interface {
	*T
	client.Object
}](ctx context.Context, informers cache.Informers, o *objects, kind O, set func(client.ObjectKey, O) bool) func() (toolscache.DoneChecker, error) {
	return func() (toolscache.DoneChecker, error) {
		informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
		take := func(object any, gone bool) {
			if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			newest, ok := object.(O)
			if !ok {
				return
			}
			key := client.ObjectKeyFromObject(newest)
			if gone {
				newest = nil
			}
			o.mu.Lock()
			matters := set(key, newest)
			o.mu.Unlock()
			if matters {
				o.notify()
			}
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { take(object, false) },
			UpdateFunc: func(_, object any) { take(object, false) },
			DeleteFunc: func(object any) { take(object, true) },
		})
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
		return registration.HasSyncedChecker(), nil
	}
}

// notify fills the one slot of wake; it is full when a pass is due already.
func (o *objects) notify() {
	signal.Send(o.wake)
}
