package reconcile

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// installed is a Service as Helm would install it, with all that an API server adds.
func installed(i int) *corev1.Service {
	app := fmt.Sprintf("app-%05d", i)
	s := balanced(app, "1")
	s.Labels = map[string]string{
		"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app,
		"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "1.2.3", "helm.sh/chart": app + "-4.5.6",
	}
	s.Annotations = map[string]string{
		"meta.helm.sh/release-name": app, "meta.helm.sh/release-namespace": s.Namespace,
		v1beta1.AnnotationPool: "p", "metallb.universe.tf/allow-shared-ip": "key",
	}
	s.Generation, s.Finalizers = 3, []string{"service.kubernetes.io/load-balancer-cleanup"}
	s.Spec.Selector = map[string]string{"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080), NodePort: 30000}}
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	s.Spec.LoadBalancerIP, s.Spec.LoadBalancerClass = "192.0.2.9", new("ours")
	s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 30001
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.9", IPMode: new(corev1.LoadBalancerIPModeVIP)}}
	s.Status.Conditions = []metav1.Condition{{
		Type: v1beta1.ConditionAllocated, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonAllocated,
		Message: "the Service has the addresses that it asks for", ObservedGeneration: 3,
	}}
	return s
}

// TestBriefSaysTheSame: of a Service that is kept brief the same is read as of the whole.
func TestBriefSaysTheSame(t *testing.T) {
	t.Parallel()
	inner := installed(2)
	inner.Spec.Type, inner.Status = corev1.ServiceTypeClusterIP, corev1.ServiceStatus{}
	inner.Spec.ExternalIPs = []string{"192.0.2.7", "2001:db8::7"}
	for _, whole := range []*corev1.Service{installed(1), inner} {
		kept, err := brief(whole.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		short, ok := kept.(*corev1.Service)
		if !ok || relevant(short) != relevant(whole) || short.ResourceVersion != whole.ResourceVersion || short.UID != whole.UID {
			t.Fatalf("of %+v this is kept: %+v", whole, kept)
		}
		if d := cmp.Diff(fromkube.ClusterIPs(whole), fromkube.ClusterIPs(short), cmpopts.EquateComparable(netip.Addr{})); d != "" {
			t.Errorf("ClusterIPs (-whole +brief):\n%s", d)
		}
		if d := cmp.Diff(fromkube.ExternalIPs(whole), fromkube.ExternalIPs(short), cmpopts.EquateComparable(netip.Addr{})); d != "" {
			t.Errorf("externalIPs (-whole +brief):\n%s", d)
		}
		if !relevant(whole) {
			continue
		}
		read := func(s *corev1.Service) *view.Service {
			v := fromkube.Requests{MetalLB: true}.Service(s)
			return v
		}
		if d := cmp.Diff(read(whole), read(short), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); d != "" {
			t.Errorf("the view (-whole +brief):\n%s", d)
		}
		if d := cmp.Diff(whole.Status, short.Status); d != "" {
			t.Errorf("the status (-whole +brief):\n%s", d)
		}
		if len(short.Annotations) != 2 || len(short.Finalizers)+len(short.Spec.Selector) > 0 {
			t.Errorf("kept without need: %+v", short)
		}
	}
}

// BenchmarkMemory: what one Service takes in the mirror, as it is told and as it is kept.
func BenchmarkMemory(b *testing.B) {
	for name, keep := range map[string]func(any) (any, error){"whole": func(s any) (any, error) { return s, nil }, "brief": brief} {
		b.Run(name, func(b *testing.B) {
			const services = 10_000
			live := func() uint64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			for b.Loop() {
				before, o := live(), newObjects(fromkube.Requests{}, fromkube.Nodes{}, Own{})
				for i := range services {
					told, err := json.Marshal(installed(i))
					s := &corev1.Service{} // no text of it is shared with another
					if err == nil {
						err = json.Unmarshal(told, s)
					}
					if err != nil {
						b.Fatal(err)
					}
					if _, err := keep(s); err != nil {
						b.Fatal(err)
					}
					o.setService(client.ObjectKeyFromObject(s), s)
				}
				b.ReportMetric(float64(live()-before)/services, "B/Service")
				runtime.KeepAlive(o)
			}
		})
	}
}
