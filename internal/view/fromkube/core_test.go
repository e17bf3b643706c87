package fromkube_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

var compare = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

// object reads YAML as the API server would answer it.
func object[T any](t *testing.T, text string) *T {
	t.Helper()
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func ips(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, s := range texts {
		list = append(list, netip.MustParseAddr(s))
	}
	return list
}

func TestServiceIsReadWhole(t *testing.T) {
	got := fromkube.Requests{}.Service(object[corev1.Service](t, `
metadata:
  name: web
  namespace: shop
  uid: u-1
  creationTimestamp: 2026-01-02T03:04:05Z
  labels: {app: web}
spec:
  type: LoadBalancer
  loadBalancerClass: fairlead.dev/front
  clusterIP: 10.96.0.7
  clusterIPs: [10.96.0.7, "fd00:96::7"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  externalIPs: [203.0.113.9, nonsense]
  externalTrafficPolicy: Local
  internalTrafficPolicy: Local
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}
  loadBalancerSourceRanges: [" 10.0.0.0/8 ", "10.1.2.3/16", bad]
  ports:
  - {name: http, port: 80, nodePort: 30080, protocol: TCP, targetPort: 8080}
  - {name: dns, port: 53, protocol: UDP}
  - {name: x, port: 7, protocol: SCTP}
status:
  loadBalancer:
    ingress: [{ip: 192.0.2.10, ipMode: VIP}, {ip: "2001:db8::10"}, {ip: 192.0.2.99, ipMode: Proxy}, {hostname: lb.example.com}]
`))
	want := &view.Service{
		Ref: view.Ref{Namespace: "shop", Name: "web"}, UID: "u-1",
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Labels: map[string]string{"app": "web"},
		Type: view.LoadBalancer, Class: "fairlead.dev/front",
		ClusterIPs: ips("10.96.0.7", "fd00:96::7"), ExternalIPs: ips("203.0.113.9"),
		Ingress: ips("192.0.2.10", "2001:db8::10", "192.0.2.99"), VIPs: ips("192.0.2.10", "2001:db8::10"),
		Ports: []view.ServicePort{
			{Name: "http", Protocol: view.TCP, Port: 80, NodePort: 30080}, {Name: "dns", Protocol: view.UDP, Port: 53}, {Name: "x", Protocol: view.SCTP, Port: 7},
		},
		ExternalLocal: true, InternalLocal: true, Affinity: time.Minute,
		SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16")},
		Unread: []problem.Problem{{
			Object: problem.Object{Kind: "Service", Namespace: "shop", Name: "web"}, Reason: "Unreadable",
			Message: `left out, all else holds: spec.loadBalancerSourceRanges[2]: "bad" is no prefix such as 192.0.2.0/24 and admits nobody; ` +
				`spec.externalIPs[1]: "nonsense" is no address`,
		}},
		Families: []addr.Family{addr.IPv4, addr.IPv6}, FamilyPolicy: view.RequireDualStack,
	}
	got.Created = got.Created.UTC()
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A controller may write an address twice, and in more than one way. Ingress has what is written, for the
// one that is to repair it.
func TestAVIPIsOneHoweverOftenItIsThere(t *testing.T) {
	got := fromkube.Requests{}.Service(object[corev1.Service](t, `
spec: {type: LoadBalancer, clusterIP: 10.96.0.7}
status:
  loadBalancer:
    ingress: [{ip: "2001:db8::10"}, {ip: 192.0.2.10}, {ip: "2001:DB8:0::10", ipMode: VIP}, {ip: 192.0.2.9, ipMode: Proxy}, {ip: 192.0.2.10}]
`))
	if want := ips("2001:db8::10", "192.0.2.10"); !slices.Equal(got.VIPs, want) {
		t.Errorf("VIPs %v, want %v", got.VIPs, want)
	}
	if want := ips("2001:db8::10", "192.0.2.10", "2001:db8::10", "192.0.2.9", "192.0.2.10"); !slices.Equal(got.Ingress, want) {
		t.Errorf("ingress %v, want %v", got.Ingress, want)
	}
}

func TestServicesWithoutAnAddressAreNotThere(t *testing.T) {
	for name, text := range map[string]string{
		"headless":      `{spec: {type: ClusterIP, clusterIP: None}}`,
		"no address":    `{spec: {type: ClusterIP}}`,
		"external name": `{spec: {type: ExternalName, clusterIP: 10.0.0.1}}`,
	} {
		if got := (fromkube.Requests{}).Service(object[corev1.Service](t, text)); got != nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

func TestServiceDetails(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		ok   func(*view.Service) bool
	}{
		"an object from before dual stack": {
			`{spec: {clusterIP: "fd00::1"}}`,
			func(s *view.Service) bool { return s.Families[0] == addr.IPv6 && len(s.ClusterIPs) == 1 },
		},
		"leading zeros of old objects": {
			`{spec: {clusterIP: 010.096.000.001}}`,
			func(s *view.Service) bool { return s.ClusterIPs[0] == netip.MustParseAddr("10.96.0.1") },
		},
		"policy Local means nothing to a ClusterIP": {
			`{spec: {type: ClusterIP, clusterIP: 10.0.0.1, externalTrafficPolicy: Local}}`,
			func(s *view.Service) bool { return !s.ExternalLocal },
		},
		"but to one with externalIPs": {
			`{spec: {type: ClusterIP, clusterIP: 10.0.0.1, externalTrafficPolicy: Local, externalIPs: [192.0.2.1]}}`,
			func(s *view.Service) bool { return s.ExternalLocal },
		},
		"affinity of three hours unless said": {
			`{spec: {clusterIP: 10.0.0.1, sessionAffinity: ClientIP}}`,
			func(s *view.Service) bool { return s.Affinity == 3*time.Hour },
		},
		"source ranges that are all unreadable admit nobody": {
			`{spec: {clusterIP: 10.0.0.1, loadBalancerSourceRanges: [nonsense]}}`,
			func(s *view.Service) bool { return s.SourceRanges != nil && len(s.SourceRanges) == 0 },
		},
		"the label of another proxy, empty too": {
			`{metadata: {labels: {service.kubernetes.io/service-proxy-name: ""}}, spec: {clusterIP: 10.0.0.1}}`,
			func(s *view.Service) bool { return s.ProxiedElsewhere },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if s := (fromkube.Requests{}).Service(object[corev1.Service](t, test.text)); !test.ok(s) {
				t.Errorf("read as %+v", s)
			}
		})
	}
}

func TestEndpointSlice(t *testing.T) {
	service, got, _ := fromkube.EndpointSlice(object[discoveryv1.EndpointSlice](t, `
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}, {name: dns, port: 53, protocol: UDP}, {name: all}, {name: bad, port: 70000}]
endpoints:
- {addresses: [10.0.0.1, 10.9.9.9], nodeName: a, targetRef: {kind: Pod, name: web-1}}
- {addresses: [10.0.0.2], conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.0.0.3], hints: {forZones: [{name: z}], forNodes: [{name: a}]}}
- {addresses: ["fd00::1"]}
- {addresses: [nonsense]}
`))
	ports := []view.EndpointPort{{Name: "http", Protocol: view.TCP, Port: 8080}, {Name: "dns", Protocol: view.UDP, Port: 53}}
	want := []view.Endpoint{
		{Addr: ips("10.0.0.1")[0], Node: "a", Ready: true, Serving: true, Pod: true, Ports: ports},
		{Addr: ips("10.0.0.2")[0], Serving: true, Terminating: true, Ports: ports},
		{Addr: ips("10.0.0.3")[0], Ready: true, Serving: true, Ports: ports, Hints: &view.Hints{ForZones: []string{"z"}, ForNodes: []string{"a"}}},
	}
	if service != (view.Ref{Namespace: "shop", Name: "web"}) {
		t.Errorf("of Service %s", service)
	}
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{
		"names":    `{metadata: {labels: {kubernetes.io/service-name: web}}, addressType: FQDN, endpoints: [{addresses: [a.example]}]}`,
		"headless": `{metadata: {labels: {kubernetes.io/service-name: web, service.kubernetes.io/headless: ""}}, addressType: IPv4}`,
		"nobody's": `{addressType: IPv4}`,
	} {
		if _, endpoints, _ := fromkube.EndpointSlice(object[discoveryv1.EndpointSlice](t, text)); endpoints != nil {
			t.Errorf("%s: taken for ours", name)
		}
	}
}

// TestWhatIsLeftOutOfASliceIsTold names each value and its place.
func TestWhatIsLeftOutOfASliceIsTold(t *testing.T) {
	const of = `metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}, `
	for text, want := range map[string]string{
		`{` + of + `addressType: IPv4, ports: [{name: a, port: 80}, {name: all}, {name: bad, port: 70000}], endpoints: [{addresses: [10.0.0.1]}, {addresses: ["fd00::1"]}, {addresses: [nonsense]}, {}]}`: "EndpointSlice/shop/web-1: Unreadable: left out, all else holds: " +
			`ports[1]: 0 is no port from 1 to 65535; ports[2]: 70000 is no port from 1 to 65535; endpoints[1]: "fd00::1" is no IPv4 address; ` +
			`endpoints[2]: "nonsense" is no IPv4 address; endpoints[3]: no address`,
		`{` + of + `addressType: FQDN, endpoints: [{addresses: [a.example]}]}`: "EndpointSlice/shop/web-1: Unreadable: left out, all else holds: " +
			"addressType: nothing is forwarded to names (FQDN); list addresses in a slice of IPv4 or IPv6",
		`{` + of + `addressType: IPv6, ports: [{port: 80}], endpoints: [{addresses: ["fd00::1"]}]}`: "",
		`{addressType: IPv4, endpoints: [{addresses: [nonsense]}]}`:                                 "", // nobody's
	} {
		got := ""
		if _, _, told := fromkube.EndpointSlice(object[discoveryv1.EndpointSlice](t, text)); len(told) > 0 {
			got = told[0].String()
		}
		if got != want {
			t.Errorf("%s:\n%s\nwant\n%s", text, got, want)
		}
	}
}

func TestTriggers(t *testing.T) {
	web := view.Ref{Namespace: "shop", Name: "web"}
	for text, want := range map[string]struct {
		family addr.Family
		at     time.Time
	}{
		`{metadata: {namespace: shop, labels: {kubernetes.io/service-name: web}, annotations: {endpoints.kubernetes.io/last-change-trigger-time: "2026-01-02T03:04:05.5Z"}}, addressType: IPv4}`: {
			addr.IPv4, time.Date(2026, 1, 2, 3, 4, 5, 5e8, time.UTC),
		},
		`{metadata: {namespace: shop, labels: {kubernetes.io/service-name: web}, annotations: {endpoints.kubernetes.io/last-change-trigger-time: "2026-01-02T03:04:05Z"}}, addressType: IPv6}`: {
			addr.IPv6, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		},
		`{metadata: {namespace: shop, labels: {kubernetes.io/service-name: web}, annotations: {endpoints.kubernetes.io/last-change-trigger-time: yesterday}}, addressType: IPv4}`: {family: addr.IPv4},
		`{metadata: {namespace: shop, labels: {kubernetes.io/service-name: web}}, addressType: IPv4}`:                                                                             {family: addr.IPv4},
	} {
		of, at := fromkube.Trigger(object[discoveryv1.EndpointSlice](t, text))
		if of != (view.EndpointsOf{Service: web, Family: want.family}) || !at.Equal(want.at) {
			t.Errorf("%s: %v at %s", text, of, at)
		}
	}
}

// TestAddressesOfNodes holds that a node is where kube-proxy and the kubelet take it to be.
func TestAddressesOfNodes(t *testing.T) {
	const in4, in6, ex4, ex6 = `{type: InternalIP, address: 192.0.2.1}`, `{type: InternalIP, address: "2001:db8::1"}`,
		`{type: ExternalIP, address: 203.0.113.1}`, `{type: ExternalIP, address: "2001:db8:1::1"}`
	for listed, want := range map[string][]netip.Addr{
		``:                          nil,
		in4 + `,` + ex4:             ips("192.0.2.1"),
		ex4 + `,` + in4:             ips("192.0.2.1"),
		ex4:                         ips("203.0.113.1"),
		ex6 + `,` + ex4:             ips("2001:db8:1::1", "203.0.113.1"),
		ex6 + `,` + in4 + `,` + ex4: ips("192.0.2.1", "2001:db8:1::1"),
		ex4 + `,` + in6:             ips("2001:db8::1", "203.0.113.1"),
		`{type: InternalIP, address: bad},` + ex4:                    ips("203.0.113.1"),
		`{type: ExternalIP, address: bad}`:                           nil,
		`{type: Hostname, address: 192.0.2.7},` + ex4 + `,` + ex4:    ips("203.0.113.1", "203.0.113.1"),
		`{type: ExternalDNS, address: 192.0.2.7},` + in4 + `,` + in6: ips("192.0.2.1", "2001:db8::1"),
	} {
		node := object[corev1.Node](t, `{metadata: {name: a}, status: {addresses: [`+listed+`]}}`)
		if got := (fromkube.Nodes{}).Read(node).Addresses; !slices.Equal(got, want) {
			t.Errorf("[%s]: %v, want %v", listed, got, want)
		}
	}
}

// TestHealthCheckNodePort is read where load balancers ask: only a LoadBalancer with the
// policy Local has one of its own to answer.
func TestHealthCheckNodePort(t *testing.T) {
	for spec, want := range map[string]uint16{
		`type: LoadBalancer, externalTrafficPolicy: Local`:   30100,
		`type: LoadBalancer, externalTrafficPolicy: Cluster`: 0,
		`type: LoadBalancer`:                                                         0,
		`type: NodePort, externalTrafficPolicy: Local`:                               0,
		`type: ClusterIP, externalTrafficPolicy: Local, externalIPs: [192.0.2.1]`:    0,
		`type: LoadBalancer, internalTrafficPolicy: Local`:                           0,
		`type: LoadBalancer, externalTrafficPolicy: Local, loadBalancerClass: a.b/c`: 30100,
	} {
		s := fromkube.Requests{}.Service(object[corev1.Service](t, `{spec: {clusterIP: 10.0.0.1, healthCheckNodePort: 30100, `+spec+`}}`))
		if s.HealthCheckPort != want {
			t.Errorf("%s: port %d is answered, want %d", spec, s.HealthCheckPort, want)
		}
	}
	s := fromkube.Requests{}.Service(object[corev1.Service](t, `{spec: {clusterIP: 10.0.0.1, type: LoadBalancer, externalTrafficPolicy: Local}}`))
	if s.HealthCheckPort != 0 {
		t.Errorf("a Service without any is answered on port %d", s.HealthCheckPort)
	}
}

func TestNodeAndSpeaker(t *testing.T) {
	node := object[corev1.Node](t, `
metadata: {name: a, labels: {node.kubernetes.io/exclude-from-external-load-balancers: ""}}
spec:
  podCIDR: 10.244.1.0/24
  podCIDRs: [10.244.1.0/24, "fd00:1::/64"]
  taints: [{key: other, effect: NoSchedule}, {key: ToBeDeletedByClusterAutoscaler, value: "1700000000", effect: NoSchedule}]
status:
  addresses: [{type: Hostname, address: a}, {type: InternalIP, address: 192.0.2.1}, {type: ExternalIP, address: 203.0.113.1}, {type: InternalIP, address: "2001:db8::1"}]
  conditions: [{type: Ready, status: "True"}, {type: NetworkUnavailable, status: "True"}]
  daemonEndpoints: {kubeletEndpoint: {Port: 10250}}
`)
	want := &view.Node{
		Name: "a", Labels: map[string]string{"node.kubernetes.io/exclude-from-external-load-balancers": ""},
		Addresses: ips("192.0.2.1", "2001:db8::1"), ExternalIPs: ips("203.0.113.1"),
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:1::/64")},
		Ready:    true, NetworkUnavailable: true, Excluded: true, Condemned: true, KubeletPort: 10250,
	}
	if diff := cmp.Diff(want, fromkube.Nodes{}.Read(node), compare); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want.Excluded = false
	if diff := cmp.Diff(want, fromkube.Nodes{IgnoreExclude: true}.Read(node), compare); diff != "" {
		t.Errorf("ignoring the label (-want +got):\n%s", diff)
	}
	for taint, condemned := range map[string]bool{
		"other": false, "DeletionCandidateOfClusterAutoscaler": false, "karpenter.sh/disrupted": true, "ToBeDeletedByClusterAutoscaler": true,
	} {
		n := fromkube.Nodes{}.Read(object[corev1.Node](t, `{spec: {taints: [{key: `+taint+`, effect: NoSchedule}]}}`))
		if n.Condemned != condemned || n.MayAnnounce() == condemned {
			t.Errorf("taint %s: condemned %t, may announce %t", taint, n.Condemned, n.MayAnnounce())
		}
	}
	for taint, excluded := range map[string]bool{
		"node.kubernetes.io/out-of-service": true, "node.kubernetes.io/unschedulable": false, "node.kubernetes.io/not-ready": false,
	} {
		n := fromkube.Nodes{}.Read(object[corev1.Node](t, `{spec: {taints: [{key: `+taint+`, effect: NoExecute}]}}`))
		if n.Excluded != excluded {
			t.Errorf("a node with the taint %s is excluded: %t", taint, n.Excluded)
		}
	}
}

func TestSpeakerPod(t *testing.T) {
	for name, test := range map[string]struct {
		pod     string
		want    view.Speaker
		without bool
	}{
		"ready":    {pod: `{spec: {nodeName: a}, status: {conditions: [{type: Ready, status: "True"}]}}`, want: view.Speaker{Node: "a", Ready: true}},
		"starting": {pod: `{spec: {nodeName: a}}`, want: view.Speaker{Node: "a"}},
		"of this release": {
			pod:  `{metadata: {annotations: {fairlead.dev/bounded-load: "true"}}, spec: {nodeName: a}}`,
			want: view.Speaker{Node: "a", BoundsLoad: true},
		},
		"told not to bound load": {
			pod:  `{metadata: {annotations: {fairlead.dev/bounded-load: "false"}}, spec: {nodeName: a}}`,
			want: view.Speaker{Node: "a"},
		},
		// It goes on answering for a moment.
		"ending": {
			pod:  `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, spec: {nodeName: a}, status: {conditions: [{type: Ready, status: "True"}]}}`,
			want: view.Speaker{Node: "a"},
		},
		"without a node": {pod: `{spec: {}}`, without: true},
		"evicted":        {pod: `{spec: {nodeName: a}, status: {phase: Failed}}`, without: true},
	} {
		if s, ok := fromkube.SpeakerPod(object[corev1.Pod](t, test.pod)); ok == test.without || s != test.want {
			t.Errorf("%s: speaker %+v, %v", name, s, ok)
		}
	}
}
