package apiserver_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// TestStart: our kinds and dual-stack Services work, and a user starts with no rights.
func TestStart(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	kinds := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(kinds), v1beta1.AddToScheme(kinds)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.Config, client.Options{Scheme: kinds})
	if err != nil {
		t.Fatal(err)
	}
	pool := &v1beta1.IPAddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       v1beta1.IPAddressPoolSpec{Addresses: []string{"192.0.2.0/24"}},
	}
	if err := c.Create(t.Context(), pool); err != nil {
		t.Fatalf("create a pool: %v", err)
	}
	both := corev1.IPFamilyPolicyRequireDualStack
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: &both,
			Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	if err := c.Create(t.Context(), service); err != nil {
		t.Fatalf("create a dual-stack Service: %v", err)
	}
	if len(service.Spec.ClusterIPs) != 2 {
		t.Errorf("a dual-stack Service has ClusterIPs %v", service.Spec.ClusterIPs)
	}

	nobody, err := client.New(server.User(t, "nobody").Config(), client.Options{Scheme: kinds})
	if err != nil {
		t.Fatal(err)
	}
	if err := nobody.List(t.Context(), &v1beta1.IPAddressPoolList{}); err == nil {
		t.Error("a user without rights may list pools")
	}
}
