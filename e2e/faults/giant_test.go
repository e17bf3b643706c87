package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// giantPorts is about as many ports as a Service of 1.4 MB has, the most that an API server admits with the fields of each
// manager. It drops these from a Service with more ports, and from 20,000 on no EndpointSlice has room for them.
const giantPorts = 10_000

// patience is for how long the tenant waits for the API server, which works for seconds on such a Service.
const patience = 4 * soon

// giant is a tenant whose Service has as many ports as can be, and comes, changes and goes all the time.
func giant() fault {
	var ports []corev1.ServicePort
	var steps int
	made := func() *corev1.Service {
		s := product.WebService(evil, "claim", "layer2", corev1.ServiceExternalTrafficPolicyCluster)
		s.Spec.AllocateLoadBalancerNodePorts, s.Spec.Ports = new(false), ports
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
		return s
	}
	return fault{
		name: "a tenant has a Service of 1.4 MB",
		// The API server works for seconds on each write of it, on the processors of the nodes.
		excused: excuses{moves: true, lost: true, unheard: true},
		inject: func(t *testing.T, k *kit, r *rand.Rand) {
			all := make([]int, giantPorts)
			for i := range all {
				all[i] = 1000 + i
			}
			protocol := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}[r.IntN(2)]
			ports, steps = claim(nil, protocol, all...).Spec.Ports, 0
			atEnd(t, func(ctx context.Context) error { return client.IgnoreNotFound(k.tenant.Delete(ctx, made())) })
			if err := k.tenant.Create(within(t, patience), made()); err != nil {
				t.Fatal(err)
			}
			k.told(t, "TooLarge", patience)
		},
		check: func(ctx context.Context, k *kit) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			steps++
			var err error
			switch steps % 3 {
			case 1:
				err = k.retarget(ctx, made())
			case 2:
				err = k.tenant.Delete(ctx, made())
			default:
				err = k.tenant.Create(ctx, made())
			}
			return errors.Join(err, k.follow(ctx, soon))
		},
	}
}

// retarget has a Service of the tenant send all its ports to another one of the pods.
func (k *kit) retarget(ctx context.Context, s *corev1.Service) error {
	return lab.Until(ctx, func() error { // others write it, too
		if err := k.tenant.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].TargetPort = intstr.FromInt32(product.WebTCP + 2)
		}
		return k.tenant.Update(ctx, s)
	})
}
