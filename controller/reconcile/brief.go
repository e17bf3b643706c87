package reconcile

import (
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"fairlead.dev/fairlead/api/v1beta1"
)

// brief keeps of a Service what is read here: of one that gets no external addresses, which most do not, what it is
// and its addresses. What all have in common is kept once.
func brief(object any) (any, error) {
	s, ok := object.(*corev1.Service)
	if !ok {
		return object, nil
	}
	s.ObjectMeta = metav1.ObjectMeta{
		Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion, Generation: s.Generation,
		CreationTimestamp: s.CreationTimestamp, DeletionTimestamp: s.DeletionTimestamp,
		Labels: s.Labels, Annotations: requests(s.Annotations),
	}
	share(&s.Namespace)
	share(&s.Spec.Type)
	if !relevant(s) {
		s.Labels, s.Annotations = nil, nil
		s.Spec = corev1.ServiceSpec{Type: s.Spec.Type, ClusterIP: s.Spec.ClusterIP, ClusterIPs: s.Spec.ClusterIPs, ExternalIPs: s.Spec.ExternalIPs}
		s.Status = corev1.ServiceStatus{}
		return s, nil
	}
	labels := make(map[string]string, len(s.Labels))
	for key, value := range s.Labels {
		share(&key)
		labels[key] = value
	}
	s.Labels = labels
	s.Spec.Selector = nil
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		p.AppProtocol, p.TargetPort = nil, intstr.IntOrString{}
		share(&p.Protocol)
		share(&p.Name)
	}
	for i := range s.Status.Conditions {
		c := &s.Status.Conditions[i]
		share(&c.Type)
		share(&c.Status)
		share(&c.Reason)
		if c.Status == metav1.ConditionTrue { // others name what is wrong
			share(&c.Message)
		}
	}
	return s, nil
}

// requests are the annotations that may ask for something, or look like it, nil for none.
func requests(annotations map[string]string) map[string]string {
	var found map[string]string
	prefixes := append(v1beta1.MetalLBPrefixes(), v1beta1.GroupName+"/")
	for key, value := range annotations {
		if !slices.ContainsFunc(prefixes, func(prefix string) bool {
			return len(key) >= len(prefix) && strings.EqualFold(key[:len(prefix)], prefix)
		}) {
			continue
		}
		if found == nil {
			found = map[string]string{}
		}
		found[key] = value
	}
	return found
}

// share replaces a text by one that all have that say the same.
func share[T ~string](text *T) { *text = unique.Make(*text).Value() }
