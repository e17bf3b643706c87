package objects

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// service is a Service as Helm would install it.
func service(i int) *corev1.Service {
	app := fmt.Sprintf("app-%05d", i)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: name(i), Namespace: namespace,
			Labels: map[string]string{
				"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app,
				"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "1.2.3", "helm.sh/chart": app + "-4.5.6",
			},
			Annotations: map[string]string{"meta.helm.sh/release-name": app, "meta.helm.sh/release-namespace": namespace},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: Address(i).Addr().String(),
			Selector:  map[string]string{"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app},
			Ports:     []corev1.ServicePort{{Name: "http", Port: Port}},
		},
	}
}

// slice is the EndpointSlice of a Service as Kubernetes' controller would write it.
func (s *Set) slice(i int, uid types.UID) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: sliceName(i), Namespace: namespace, GenerateName: name(i) + "-",
			Labels: map[string]string{
				discoveryv1.LabelServiceName: name(i), discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
				"app.kubernetes.io/name": fmt.Sprintf("app-%05d", i), "app.kubernetes.io/managed-by": "Helm",
			},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339Nano)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: name(i), UID: uid,
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{
			Name: new("http"), Port: new(int32(ServePort)), Protocol: new(corev1.ProtocolTCP),
		}},
	}
	for n, address := range endpoints(i, s.second[i]) {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address.String()},
			Conditions: discoveryv1.EndpointConditions{
				Ready: new(true), Serving: new(true), Terminating: new(false),
			},
			NodeName: new(fmt.Sprintf("worker-%d", (i+n)%100)),
			Zone:     new(string(rune('a' + n%3))),
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: namespace, Name: fmt.Sprintf("app-%05d-7c9d8f6b5-x%03d", i, n),
				UID: types.UID(fmt.Sprintf("8b24d57f-0000-4000-8000-%06d%06d", i, n)),
			},
		})
	}
	return slice
}
