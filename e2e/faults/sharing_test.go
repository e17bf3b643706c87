package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// sharing is a tenant who wants to share the address of another namespace, and reads what is said to that.
func sharing() fault {
	asking := func(key string, vip netip.Addr) *corev1.Service {
		s := product.WebService(evil, "claim", "layer2", corev1.ServiceExternalTrafficPolicyCluster)
		s.Annotations[v1beta1.AnnotationShareKey], s.Annotations[v1beta1.AnnotationAddresses] = key, vip.String()
		s.Spec.Ports[0].Port, s.Spec.Ports[1].Port = 8099, 8099
		return s
	}
	return fault{
		name: "a tenant wants to share an address", gate: true,
		inject: func(t *testing.T, k *kit, _ *rand.Rand) {
			s := asking("x", k.layer2[0])
			k.create(t, s)
			ctx := within(t, soon)
			answered := func() error {
				err := k.tenant.Get(ctx, client.ObjectKeyFromObject(s), s)
				if err == nil && len(s.Status.Conditions) == 0 {
					err = errors.New("the Service has no condition")
				}
				return err
			}
			if err := lab.Until(ctx, answered); err != nil {
				t.Fatal(err)
			}
			if text := s.Status.String(); strings.Contains(text, secretKey) {
				t.Errorf("the tenant is told the key of another namespace: %s", text)
			}
			s.Annotations[v1beta1.AnnotationShareKey] = secretKey // as if it had been
			if err := k.tenant.Update(ctx, s); err != nil {
				t.Fatal(err)
			}
		},
		check: func(ctx context.Context, k *kit) error {
			if got, err := k.Addresses(ctx, client.ObjectKey{Namespace: evil, Name: "claim"}, 1); err == nil {
				return fmt.Errorf("the tenant has %v, which is another namespace's", got)
			}
			var events corev1.EventList
			if err := k.tenant.List(ctx, &events, client.InNamespace(evil)); err != nil {
				return err
			}
			for _, e := range events.Items {
				if strings.Contains(e.Message, secretKey) {
					return fmt.Errorf("an Event tells the key of another namespace: %s", e.Message)
				}
			}
			return nil
		},
	}
}
