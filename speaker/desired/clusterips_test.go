package desired_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestAClusterIPIsItsServicesAlone has a Service ask for the ClusterIP of another one, and for
// its own, while that other one comes and goes.
func TestAClusterIPIsItsServicesAlone(t *testing.T) {
	dns := service(func(s *view.Service) { s.Ref = view.Ref{Namespace: "kube-system", Name: "dns"} })
	greedy := service(func(s *view.Service) {
		s.Ref, s.ClusterIPs = view.Ref{Namespace: "a", Name: "greedy"}, ips("10.96.0.9")
		s.ExternalIPs, s.VIPs = ips("10.96.0.7", "198.51.100.9", "10.96.0.9"), ips("192.0.2.11", "10.96.0.7")
	})
	c := cluster(greedy, endpoint("10.0.0.1", "a"))
	engine := desired.NewEngine(onNode("a"))
	key := desired.PortKey{Service: greedy.Ref, Name: "http", Protocol: view.TCP, Family: addr.IPv4}
	for step, elsewhere := range []bool{false, false, false, true} {
		present := step%2 == 1
		now := &view.Cluster{}
		*now = *c
		now.Changes = view.Changes{Revision: uint64(step + 1), Since: uint64(step), Touched: map[view.Ref]struct{}{dns.Ref: {}}}
		now.Services = map[view.Ref]*view.Service{greedy.Ref: greedy}
		external, vips := ips("10.96.0.7", "198.51.100.9"), ips("10.96.0.7", "192.0.2.11")
		if present {
			other := *dns
			other.ProxiedElsewhere = elsewhere
			now.Services[dns.Ref] = &other
			external, vips = external[1:], vips[1:]
		}
		got, problems := engine.Decide(now)
		p := got.Forwarding.Ports[key]
		if !slices.Equal(p.ExternalIPs, external) || !slices.Equal(p.VIPs, vips) || p.ClusterIP != netip.MustParseAddr("10.96.0.9") {
			t.Errorf("step %d: it has %v, %v and %s, want %v, %v", step, p.ExternalIPs, p.VIPs, p.ClusterIP, external, vips)
		}
		told := 0
		for _, problem := range problems {
			if problem.Reason == desired.ReasonClusterIPTaken && problem.Object == greedy.Object() && strings.Contains(problem.Message, "10.96.0.7 is the ClusterIP of Service kube-system/dns") {
				told++
			}
		}
		if (told == 1) != present {
			t.Errorf("step %d: told %d times: %v", step, told, problems)
		}
	}
}
