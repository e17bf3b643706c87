package fromkube_test

import (
	"net/netip"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// FuzzService: what is read of a Service can be rendered, whatever its fields hold: one
// address or range that is none would have the kernel refuse the rules of all others.
func FuzzService(f *testing.F) {
	f.Add("10.96.0.1", "198.51.100.7", "192.0.2.1", "10.0.0.0/8")
	f.Add("fd00::1", "2001:db8::7", "::ffff:192.0.2.1", "::ffff:10.0.0.0/120")
	f.Add("010.096.000.001", " 1.2.3.4 ", "fe80::1%eth0", "10.0.0.1/8")
	f.Add("None", "", "", "nonsense")
	f.Fuzz(func(t *testing.T, clusterIP, externalIP, vip, sourceRange string) {
		s := fromkube.Requests{}.Service(&corev1.Service{
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, ClusterIP: clusterIP, ExternalIPs: []string{externalIP},
				LoadBalancerSourceRanges: []string{sourceRange}, Ports: []corev1.ServicePort{{Port: 80}},
			},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: vip}}}},
		})
		if s == nil {
			return
		}
		if s.SourceRanges == nil {
			t.Errorf("with the range %q everybody is admitted", sourceRange)
		}
		for _, p := range s.SourceRanges {
			if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
				t.Errorf("%q is read as %v", sourceRange, p)
			}
		}
		for _, list := range [][]netip.Addr{s.ClusterIPs, s.ExternalIPs, s.Ingress, s.VIPs} {
			usable(t, list...)
		}
	})
}

// FuzzStray: whatever a key is, what is told of it is a text that an API server takes.
func FuzzStray(f *testing.F) {
	f.Add("fairlead.dev/pools")
	f.Add("METALLB.io/")
	f.Add("fairlead.dev/\xff")
	f.Fuzz(func(t *testing.T, key string) {
		of := &metav1.ObjectMeta{Annotations: map[string]string{key: ""}, Labels: map[string]string{key: ""}}
		for _, kind := range []string{"Service", "Node"} {
			told := fromkube.Requests{MetalLB: true}.Stray(problem.Object{Kind: kind}, of)
			if told != nil && (len(told.Message) > 1000 || !utf8.ValidString(told.Message)) {
				t.Errorf("%q is told as %v", key, told)
			}
		}
	})
}

// FuzzEndpointSlice: likewise.
func FuzzEndpointSlice(f *testing.F) {
	f.Add("10.0.0.1", "IPv4", "TCP", int32(80))
	f.Add("::ffff:10.0.0.1", "IPv6", "UDP", int32(70000))
	f.Add("fe80::1%eth0", "IPv6", "SCTP", int32(-1))
	f.Add("a.example", "FQDN", "", int32(0))
	f.Fuzz(func(t *testing.T, address, addressType, protocol string, port int32) {
		of := discoveryv1.AddressType(addressType)
		slice := &discoveryv1.EndpointSlice{
			AddressType: of,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
			Ports:       []discoveryv1.EndpointPort{{Port: &port, Protocol: (*corev1.Protocol)(&protocol)}},
		}
		if _, endpoints, _ := fromkube.EndpointSlice(slice); endpoints != nil {
			t.Error("a slice of no Service is taken for that of one")
		}
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
		_, endpoints, _ := fromkube.EndpointSlice(slice)
		for _, e := range endpoints {
			usable(t, e.Addr)
			if e.Addr.Is4() != (of == discoveryv1.AddressTypeIPv4) {
				t.Errorf("%v is in a slice of %s", e.Addr, addressType)
			}
			for _, p := range e.Ports {
				if int32(p.Port) != port || port == 0 {
					t.Errorf("port %d is read as %d", port, p.Port)
				}
			}
		}
	})
}

func usable(t *testing.T, list ...netip.Addr) {
	t.Helper()
	for _, a := range list {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
			t.Errorf("%v can be no destination", a)
		}
	}
}
