package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/controller/verify"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// TestAggregatesAreHeldAgainstEndpoints: an advertisement tells of an aggregate that draws
// traffic to nodes which drop it, whatever is seen first, and no longer than it is so.
func TestAggregatesAreHeldAgainstEndpoints(t *testing.T) {
	t.Parallel()
	o := newObjects(fromkube.Requests{}, fromkube.Nodes{}, Own{})
	for _, name := range []string{"node1", "node2"} {
		o.setNode(client.ObjectKey{Name: name}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	named(o, &o.Pools)(client.ObjectKey{Name: "p"}, &v1beta1.IPAddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1beta1.IPAddressPoolSpec{Addresses: v1beta1.AddressRanges{"192.0.2.0/24"}},
	})
	named(o, &o.BGPPeers)(client.ObjectKey{Name: "tor"}, &v1beta1.BGPPeer{
		ObjectMeta: metav1.ObjectMeta{Name: "tor"}, Spec: v1beta1.BGPPeerSpec{MyASN: 64500, PeerASN: 64512, PeerAddress: "198.51.100.1"},
	})
	for name, policy := range map[string]corev1.ServiceExternalTrafficPolicy{"near": corev1.ServiceExternalTrafficPolicyLocal, "far": corev1.ServiceExternalTrafficPolicyCluster} {
		s := balanced(name, "1")
		s.Spec.IPFamilies, s.Spec.ExternalTrafficPolicy = []corev1.IPFamily{corev1.IPv4Protocol}, policy
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: map[string]string{"near": "192.0.2.9", "far": "192.0.2.8"}[name]}}
		o.see(s)
	}
	on := func(service string, nodes ...string) {
		slice := endpointSlice(service, service, true, nodes...)
		o.setSlice(client.ObjectKeyFromObject(slice), slice)
	}
	ad := func(length *int32) {
		o.setBGPAdvertisement(client.ObjectKey{Name: "wide"}, &v1beta1.BGPAdvertisement{
			ObjectMeta: metav1.ObjectMeta{Name: "wide"}, Spec: v1beta1.BGPAdvertisementSpec{AggregationLength: length},
		})
	}
	last := &decision{}
	told := func() bool {
		last = decide(o.snapshot(), last, indelible{}, view.Classes{}, time.Unix(0, 0))
		for _, p := range last.problems {
			if p.Object == (problem.Object{Kind: "BGPAdvertisement", Name: "wide"}) && p.Reason == verify.ReasonAggregateOverLocal {
				return strings.Contains(p.Message, "192.0.2.9")
			}
		}
		return false
	}
	length := int32(24)
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"addresses one by one", func() { on("near", "node1"); on("far", "node1"); ad(nil) }, false},
		{"an aggregate after the endpoints", func() { ad(&length) }, true},
		{"an endpoint on the other node", func() { on("near", "node1", "node2") }, false},
		{"none there any more", func() { on("near", "node1") }, true},
		{"no aggregate", func() { ad(nil) }, false},
		{"an aggregate again", func() { ad(&length) }, true},
		{"no advertisement", func() { o.setBGPAdvertisement(client.ObjectKey{Name: "wide"}, nil) }, false},
	} {
		step.do()
		if got := told(); got != step.want {
			t.Errorf("%s: told %t, want %t", step.name, got, step.want)
		}
	}
	if have := o.snapshot().cluster.Endpoints.Of(view.Ref{Namespace: "default", Name: "far"}); len(have) > 0 {
		t.Errorf("without an aggregate the endpoints %v are kept", have)
	}
}

// TestEndpointsThatChangeNothingHere: of the endpoints of a Service it matters on which nodes some are
// usable, and only under policy Local.
func TestEndpointsThatChangeNothingHere(t *testing.T) {
	t.Parallel()
	o := newObjects(fromkube.Requests{}, fromkube.Nodes{}, Own{})
	for name, policy := range map[string]corev1.ServiceExternalTrafficPolicy{"near": corev1.ServiceExternalTrafficPolicyLocal, "far": corev1.ServiceExternalTrafficPolicyCluster} {
		s := balanced(name, "1")
		s.Spec.IPFamilies, s.Spec.ExternalTrafficPolicy = []corev1.IPFamily{corev1.IPv4Protocol}, policy
		o.see(s)
	}
	for _, step := range []struct {
		name, service, slice string
		nodes                []string // two endpoints on each; nil: the slice is deleted
		ready                bool
		want                 bool
	}{
		{"the first", "near", "s1", []string{"a"}, true, true},
		{"the same again", "near", "s1", []string{"a"}, true, false},
		{"another slice on the same node", "near", "s2", []string{"a"}, true, false},
		{"one on a node more", "near", "s2", []string{"a", "b"}, true, true},
		{"not ready there", "near", "s2", []string{"a", "b"}, false, true},
		{"the slice is another Service's", "far", "s2", []string{"b"}, true, false},
		{"and that one's again", "near", "s2", []string{"b"}, true, true},
		{"gone", "near", "s2", nil, false, true},
		{"the last one gone", "near", "s1", nil, false, true},
		{"gone before", "near", "s1", nil, false, false},
	} {
		slice := endpointSlice(step.slice, step.service, step.ready, slices.Concat(step.nodes, step.nodes)...)
		key := client.ObjectKeyFromObject(slice)
		if step.nodes == nil {
			slice = nil
		}
		if got := o.setSlice(key, slice); got != step.want {
			t.Errorf("%s: matters %t, want %t", step.name, got, step.want)
		}
	}
	if left := slices.Collect(o.endpointSlices.Services()); len(left)+o.endpointSlices.Len() > 0 {
		t.Errorf("kept: %v of %d slices", left, o.endpointSlices.Len())
	}
}

// endpointSlice lists an endpoint of a Service on each of the nodes.
func endpointSlice(name, service string, ready bool, nodes ...string) *discoveryv1.EndpointSlice {
	port, protocol := int32(8080), corev1.ProtocolTCP
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}},
	}
	for i, node := range nodes {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.%d.%d", name[len(name)-1], i+1)}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return slice
}

// TestSlimSaysTheSame: of an EndpointSlice that is kept slim the same nodes follow as of the whole, also where
// pods differ in the ports they have.
func TestSlimSaysTheSame(t *testing.T) {
	t.Parallel()
	s := &view.Service{Ports: []view.ServicePort{{Name: "http", Protocol: view.TCP}, {Name: "dns", Protocol: view.UDP}}}
	http, dns, proto, udp := "http", "dns", corev1.ProtocolTCP, corev1.ProtocolUDP
	one, both := endpointSlice("s1", "s", true, "a", "b"), endpointSlice("s2", "s", true, "b")
	one.Ports[0].Name = &http
	both.Ports = []discoveryv1.EndpointPort{
		{Name: &http, Protocol: &proto, Port: one.Ports[0].Port}, {Name: &dns, Protocol: &udp, Port: one.Ports[0].Port},
	}
	nodes := func(slices ...*discoveryv1.EndpointSlice) []string {
		var all []view.Endpoint
		for _, slice := range slices {
			_, endpoints, _ := fromkube.EndpointSlice(slice)
			all = append(all, endpoints...)
		}
		return view.UsableOf(s, all, addr.IPv4).Nodes()
	}
	whole := nodes(one, both)
	for _, slice := range []*discoveryv1.EndpointSlice{one, both} {
		slice.Annotations, slice.Endpoints[0].TargetRef = map[string]string{"a": "b"}, &corev1.ObjectReference{Name: "pod"}
		if _, err := slim(slice); err != nil {
			t.Fatal(err)
		}
		if len(slice.Annotations) > 0 || slice.Endpoints[0].TargetRef != nil {
			t.Errorf("kept without need: %+v", slice)
		}
	}
	if short := nodes(one, both); !slices.Equal(whole, []string{"b"}) || !slices.Equal(short, whole) {
		t.Errorf("of the whole follow %q, of what is kept %q", whole, short)
	}
}
