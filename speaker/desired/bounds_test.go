package desired_test

import (
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// size is of a Service and its endpoints.
type size struct{ ports, external, vips, endpoints, sources int }

func (z size) service() *view.Service {
	return service(func(s *view.Service) {
		s.Ports, s.ClusterIPs = nil, s.ClusterIPs[:1]
		for i := range z.ports {
			s.Ports = append(s.Ports, view.ServicePort{Name: fmt.Sprint("p", i), Protocol: view.TCP, Port: uint16(i + 1)})
		}
		s.VIPs, s.ExternalIPs = addressesFrom("203.0.113.1", z.vips), addressesFrom("198.18.0.0", z.external)
		for _, a := range addressesFrom("100.64.0.0", z.sources) {
			s.SourceRanges = append(s.SourceRanges, addr.HostPrefix(a))
		}
	})
}

func (z size) pods() []view.Endpoint {
	var ports []view.EndpointPort
	for i := range z.ports {
		ports = append(ports, view.EndpointPort{Name: fmt.Sprint("p", i), Protocol: view.TCP, Port: uint16(i + 1)})
	}
	var pods []view.Endpoint
	for _, a := range addressesFrom("10.0.0.1", z.endpoints) {
		pods = append(pods, view.Endpoint{Addr: a, Node: "a", Ready: true, Serving: true, Ports: ports})
	}
	return pods
}

func addressesFrom(first string, n int) (all []netip.Addr) {
	for a := netip.MustParseAddr(first); len(all) < n; a = a.Next() {
		all = append(all, a)
	}
	return all
}

// TestOneServiceIsBounded: the first destinations, endpoints and source ranges are forwarded, in whatever order addresses
// and endpoints are listed, all that nodes announce is among them, and what is left out is told once.
func TestOneServiceIsBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		size
		ports, external, endpoints, sources int // forwarded, those but the first of each port
		told                                []string
	}{
		"most that is not":         {size{ports: 1000, external: 8, vips: 1, endpoints: 5, sources: 10}, 1000, 8, 5, 10, nil},
		"RTP":                      {size{ports: 2000, external: 3, vips: 1, endpoints: 5}, 2000, 3, 5, 0, nil},
		"many of one endpoint":     {size{ports: 1, external: 0, vips: 1, endpoints: 5000}, 1, 0, 5000, 0, nil},
		"addresses":                {size{ports: 1000, external: 10000, vips: 1, endpoints: 2}, 1000, 8, 2, 0, []string{"10002000 destinations (1000 ports × 10002 addresses)", "10000"}},
		"addresses of one port":    {size{ports: 1, external: 5000, vips: 1, endpoints: 2}, 1, 254, 2, 0, []string{"5002 addresses", "256"}},
		"ports":                    {size{ports: 30000, vips: 1, endpoints: 2}, 5000, 0, 2, 0, []string{"60000 destinations (30000 ports × 2 addresses)", "10000"}},
		"ports and addresses":      {size{ports: 30000, vips: 1, external: 20, endpoints: 1}, 5000, 0, 1, 0, []string{"660000 destinations", "10000"}},
		"endpoints":                {size{ports: 1000, vips: 1, endpoints: 300}, 1000, 0, 25, 0, []string{"2000 destinations with more than 25 endpoints each"}},
		"endpoints of one port":    {size{ports: 1, vips: 1, endpoints: 20000}, 1, 0, 5000, 0, []string{"2 destinations with more than 5000 endpoints each"}},
		"endpoints of one address": {size{ports: 1, external: 98, endpoints: 200}, 1, 98, 101, 0, []string{"99 destinations with more than 101 endpoints each"}},
		"source ranges":            {size{ports: 1000, vips: 1, endpoints: 1, sources: 3000}, 1000, 0, 1, 10, []string{"1000 destinations with 3000 spec.loadBalancerSourceRanges", "10"}},
		"one port, many ranges":    {size{ports: 1, vips: 1, endpoints: 1, sources: 10000}, 1, 0, 1, 10000, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := tt.service()
			c := cluster(s, tt.pods()...)
			got, problems := fresh(c, onNode("a"))
			ports := got.Forwarding.Ports
			if len(ports) != tt.ports {
				t.Errorf("%d ports, want %d", len(ports), tt.ports)
			}
			for i := range tt.ports {
				p := ports[desired.PortKey{Service: s.Ref, Name: fmt.Sprint("p", i), Protocol: view.TCP, Family: addr.IPv4}]
				if !slices.Equal(p.ExternalIPs, s.ExternalIPs[:tt.external]) || len(p.VIPs) != tt.vips || !p.ClusterIP.IsValid() ||
					len(p.Cluster) != tt.endpoints || len(p.Listed) != tt.endpoints || len(p.SourceRanges) != tt.sources || p.Restricted != (tt.size.sources > 0) {
					t.Fatalf("port %d: %d externalIPs, %d VIPs, %d and %d endpoints, %d ranges", i, len(p.ExternalIPs), len(p.VIPs), len(p.Cluster), len(p.Listed), len(p.SourceRanges))
				}
			}
			tooLarge := slices.DeleteFunc(problems, func(p problem.Problem) bool { return p.Reason != view.ReasonTooLarge })
			if len(tooLarge) != min(len(tt.told), 1) {
				t.Fatalf("told %v", tooLarge)
			}
			for _, text := range tt.told {
				if tooLarge[0].Object != s.Object() || !strings.Contains(tooLarge[0].Message, text) {
					t.Errorf("told %v, want %q", tooLarge, text)
				}
			}
			reversed := *s
			reversed.ExternalIPs, reversed.SourceRanges = slices.Clone(s.ExternalIPs), slices.Clone(s.SourceRanges)
			pods := tt.pods()
			slices.Reverse(pods)
			slices.Reverse(reversed.ExternalIPs)
			slices.Reverse(reversed.SourceRanges)
			again, _ := fresh(cluster(&reversed, pods...), onNode("a"))
			if !maps.EqualFunc(ports, again.Forwarding.Ports, desired.Port.Equal) {
				t.Error("in another order it is other ones")
			}
		})
	}
}

// TestALargeServiceIsServedByEachNode: of more endpoints than a node forwards, its own are among them.
func TestALargeServiceIsServedByEachNode(t *testing.T) {
	t.Parallel()
	z := size{ports: 1000, vips: 1, endpoints: 300}
	pods := z.pods()
	for i := range pods {
		pods[i].Node = fmt.Sprint("node", i%100)
	}
	s := z.service()
	s.ExternalLocal, s.InternalLocal, s.HealthCheckPort = true, true, 30100
	c := cluster(s, pods...)
	for _, node := range []string{"node0", "node50", "node99"} {
		got, _ := fresh(c, onNode(node))
		p := got.Forwarding.Ports[desired.PortKey{Service: s.Ref, Name: "p999", Protocol: view.TCP, Family: addr.IPv4}]
		if ready := got.Health[s.Ref].Ready[addr.IPv4]; len(p.Local) != ready || ready == 0 || len(p.Cluster) != 25 {
			t.Errorf("%s: %d endpoints of its own, and %d of all; its health check says %d", node, len(p.Local), len(p.Cluster), ready)
		}
	}
}

// TestALargeServiceCostsOthersNothing has Services change beside one of the size that an API server admits.
func TestALargeServiceCostsOthersNothing(t *testing.T) {
	giant := size{ports: 10000, external: 20000, vips: 1, endpoints: 1000, sources: 5000}
	s := giant.service()
	c := cluster(s, giant.pods()...)
	others := map[view.Ref][]view.Endpoint{s.Ref: c.Endpoints.Of(s.Ref)}
	for i := range 100 {
		o := service(func(o *view.Service) {
			o.Ref, o.ClusterIPs, o.VIPs = view.Ref{Namespace: "b", Name: fmt.Sprint(i)}, addressesFrom(fmt.Sprintf("10.96.1.%d", i), 1), nil
		})
		c.Services[o.Ref] = o
		others[o.Ref] = []view.Endpoint{endpoint("10.0.0.1", "a")}
	}
	c.Endpoints, c.Changes = new(view.Endpoints).With(others), view.Changes{Revision: 1}
	before := heap()
	engine := desired.NewEngine(onNode("a"))
	began := time.Now()
	engine.Decide(c)
	first := time.Since(began)
	if grown := int64(heap()-before) >> 20; grown > 50 {
		t.Errorf("it takes %d MiB, want less than 50", grown)
	} else {
		t.Logf("it takes %d MiB, and %v", grown, first)
	}
	began = time.Now()
	const changes = 100
	for i := range changes {
		next := *c
		ref := view.Ref{Namespace: "b", Name: fmt.Sprint(i)}
		next.Changes = view.Changes{Revision: uint64(i + 2), Since: uint64(i + 1), Touched: map[view.Ref]struct{}{ref: {}}}
		next.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{ref: {endpoint("10.0.0.2", "a")}})
		c = &next
		got, _ := engine.Decide(c)
		if len(got.Forwarding.Changed) != 1 {
			t.Fatalf("%d ports changed", len(got.Forwarding.Changed))
		}
	}
	each := time.Since(began) / changes
	t.Logf("a change of another takes %v", each)
	if each > 50*time.Millisecond {
		t.Errorf("a change of another takes %v, want less than 50 ms", each)
	}
}

// heap is what lives.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
