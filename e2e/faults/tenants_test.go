package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// claim is a Service of the tenant that wants addresses and ports of others.
func claim(addresses []netip.Addr, protocol corev1.Protocol, ports ...int) *corev1.Service {
	s := product.WebService(evil, "claim", "", "")
	s.Spec.Type, s.Spec.IPFamilyPolicy, s.Spec.Ports = corev1.ServiceTypeClusterIP, new(corev1.IPFamilyPolicyPreferDualStack), nil
	for _, a := range addresses {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, a.String())
	}
	target := product.WebTCP
	if protocol == corev1.ProtocolUDP {
		target++
	}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: "p" + strconv.Itoa(p), Protocol: protocol, Port: int32(p), TargetPort: intstr.FromInt(target),
		})
	}
	return s
}

// create creates an object of the tenant until the test ends.
func (k *kit) create(t *testing.T, o client.Object) {
	t.Helper()
	atEnd(t, func(ctx context.Context) error { return client.IgnoreNotFound(k.tenant.Delete(ctx, o)) })
	if err := k.tenant.Create(within(t, soon), o); err != nil {
		t.Fatal(err)
	}
}

// told waits until an Event of the tenant's Service has a reason.
func (k *kit) told(t *testing.T, reason string, limit time.Duration) {
	t.Helper()
	ctx := within(t, limit)
	err := lab.Until(ctx, func() error {
		var events corev1.EventList
		if err := k.tenant.List(ctx, &events, client.InNamespace(evil)); err != nil {
			return err
		}
		var others []string
		for _, e := range events.Items {
			if e.InvolvedObject.Name == "claim" && e.Reason == reason {
				return nil
			}
			others = append(others, e.Reason)
		}
		return fmt.Errorf("no Event %s among %v", reason, others)
	})
	if err != nil {
		t.Error("the tenant is not told: ", err)
	}
}

// nodeAddresses are those of all nodes, in both families.
func (k *kit) nodeAddresses() (all []netip.Addr) {
	for _, n := range k.Nodes() {
		all = append(all, n.IPv4, n.IPv6)
	}
	return all
}

// lifeline is a fault in which a tenant's Service claims what keeps the cluster alive.
func lifeline(what string, addresses func(*kit) []netip.Addr, protocol corev1.Protocol, ports ...int) fault {
	return fault{
		name: "a tenant claims " + what, gate: true,
		inject: func(t *testing.T, k *kit, _ *rand.Rand) {
			k.create(t, claim(addresses(k), protocol, ports...))
			k.told(t, "LifelineTaken", 10*time.Second)
		},
	}
}

// byTenants are what a user who may edit one namespace does, and what a controller of another class writes.
func byTenants() []fault {
	router := lifeline("the router", func(k *kit) []netip.Addr { return []netip.Addr{k.Router.IPv4, k.Router.IPv6} }, corev1.ProtocolTCP, 179)
	claimed := router.inject
	router.excused = excuses{lost: true} // by what an administrator of the router does
	router.inject = func(t *testing.T, k *kit, r *rand.Rand) {
		claimed(t, k, r)
		if _, err := k.Router.VTYSH(within(t, soon), "clear bgp *"); err != nil {
			t.Fatal(err)
		}
		_ = lab.Until(within(t, promptly), func() error { // or the sessions were back before
			if k.announced() == nil {
				return errors.New("the router still has the routes")
			}
			return nil
		})
		if err := lab.Until(within(t, soon), k.announced); err != nil {
			t.Error("BGP does not come back: ", err)
		}
	}
	nodes := (*kit).nodeAddresses
	return []fault{
		lifeline("hellos and BFD", nodes, corev1.ProtocolUDP, 7475, 3784, 4784),
		lifeline("ports of nodes", nodes, corev1.ProtocolTCP, 10250, 10256, 7474, 7476),
		lifeline("the API server", func(k *kit) []netip.Addr { return []netip.Addr{k.ControlPlane.IPv4} }, corev1.ProtocolTCP, 6443, apiPort),
		router, sharing(), aStatus(), giant(),
	}
}

// aStatus is what a load balancer of another class may write, and what no node is to believe.
func aStatus() fault {
	return fault{
		name: "a status has addresses of nodes",
		inject: func(t *testing.T, k *kit, r *rand.Rand) {
			s := product.WebService(evil, "claim", "", "")
			s.Spec.LoadBalancerClass, s.Spec.Ports = new("example.com/other"), claim(nil, corev1.ProtocolTCP, 10248, 10250).Spec.Ports
			k.create(t, s)
			for _, a := range []string{"127.0.0.1", k.victim(r).IPv4.String(), "169.254.1.1"} {
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
			}
			if err := k.API.Status().Update(within(t, soon), s); err != nil {
				t.Fatal(err)
			}
		},
		check: func(ctx context.Context, k *kit) error {
			for _, n := range k.Nodes() {
				if got, err := n.Get(ctx, "http://127.0.0.1:10248/healthz"); err != nil || got != "ok" {
					return fmt.Errorf("the kubelet of %s says to itself %q, %w", n.Name, got, err)
				}
			}
			return nil
		},
	}
}
