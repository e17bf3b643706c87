package desired_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// alive is a cluster with all that lifelines are of, in both families: nodes, of which a has an API server, and c another
// port of its kubelet and an ExternalIP; a router on another port, towards which nodes have an address of their own; and an
// API server that is no node.
func alive(services ...*view.Service) (*view.Cluster, desired.Options) {
	c := cluster(services[0], endpoint("10.0.0.1", "a"), endpoint("fd00:1::1", "a"))
	for _, s := range services {
		c.Services[s.Ref] = s
	}
	c.Configured = true
	c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{{Namespace: "default", Name: "kubernetes"}: {
		{Addr: ip("198.51.100.11"), Ports: []view.EndpointPort{{Name: "https", Protocol: view.TCP, Port: 6443}}},
		{Addr: ip("203.0.113.1"), Ports: []view.EndpointPort{{Name: "https", Protocol: view.TCP, Port: 6443}}},
	}})
	c.Nodes["c"].KubeletPort, c.Nodes["c"].ExternalIPs = 20250, ips("203.0.113.33")
	c.BGPPeers["other"] = &view.BGPPeer{Name: "other", PeerAddress: ip("2001:db8:ffff::1"), PeerPort: 1179, SourceAddress: ip("2001:db8:ffff::2")}
	o := onNode("a")
	o.HostPorts = []uint16{7474, 7475, 7476, 10256}
	o.APIServers = []netip.AddrPort{netip.MustParseAddrPort("[2001:db8:fffe::1]:443")}
	return c, o
}

// lines are addresses with ports that no Service may have.
func lines() []netip.AddrPort {
	var all []netip.AddrPort
	for at, ports := range map[string][]uint16{
		"198.51.100.11":    {179, 2379, 2380, 3784, 4784, 6443, 7474, 7475, 7476, 10250, 10256}, // a
		"2001:db8:ff00::b": {179, 2379, 2380, 3784, 4784, 6443, 7474, 7475, 7476, 10250, 10256},
		"198.51.100.12":    {179, 3784, 4784, 7474, 7475, 7476, 10250, 10256}, // b
		"198.51.100.13":    {179, 3784, 4784, 7474, 7475, 7476, 10250, 10256, 20250},
		"2001:db8:ff00::d": {179, 3784, 4784, 7474, 7475, 7476, 10250, 10256, 20250},
		"203.0.113.33":     {7475, 20250},
		"198.51.100.1":     {179, 3784, 4784}, // the routers
		"2001:db8:ffff::1": {179, 1179, 3784, 4784},
		"2001:db8:ffff::2": {179, 3784, 4784, 7475, 10250},
		"203.0.113.1":      {6443}, // API servers
		"2001:db8:fffe::1": {443},
	} {
		for _, port := range ports {
			all = append(all, netip.AddrPortFrom(ip(at), port))
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

// destinations are what a node translates, but for ClusterIPs.
func destinations(f desired.Forwarding) map[netip.AddrPort]bool {
	all := map[netip.AddrPort]bool{}
	for _, p := range f.Ports {
		for _, a := range slices.Concat(p.ExternalIPs, p.VIPs) {
			all[netip.AddrPortFrom(a, p.Port)] = true
		}
	}
	return all
}

func reasonsOf(problems []problem.Problem, of problem.Object) []string {
	var found []string
	for _, p := range problems {
		if p.Object == of {
			found = append(found, p.Reason)
		}
	}
	return found
}

// TestALifelineIsNoDestination has a Service ask for each, in its spec, and in its status as of this class and another;
// another port of the same address is forwarded as ever.
func TestALifelineIsNoDestination(t *testing.T) {
	t.Parallel()
	for _, line := range lines() {
		for _, field := range []string{"spec", "status", "status of another class"} {
			s := service(func(s *view.Service) {
				s.Ref = view.Ref{Namespace: "evil", Name: "x"}
				s.VIPs = nil
				s.Ports = []view.ServicePort{{Name: "line", Protocol: view.UDP, Port: line.Port()}, {Name: "http", Protocol: view.TCP, Port: 8000}}
				switch field {
				case "spec":
					s.ExternalIPs = []netip.Addr{line.Addr()}
				case "status of another class":
					s.Class = "example.com/other"
					fallthrough
				default:
					s.VIPs = []netip.Addr{line.Addr()}
				}
			})
			c, o := alive(s)
			got, problems := fresh(c, o)
			all := destinations(got.Forwarding)
			if all[line] {
				t.Errorf("%s: %s is translated", field, line)
			}
			if !slices.Contains(reasonsOf(problems, s.Object()), desired.ReasonLifelineTaken) {
				t.Errorf("%s: %s: told is %v", field, line, problems)
			}
			if beside := netip.AddrPortFrom(line.Addr(), 8000); field == "spec" && !all[beside] {
				t.Errorf("%s is not translated", beside)
			}
		}
	}
}

// TestNoNodePortIsAPortOfTheNode has them of a range that reaches so far.
func TestNoNodePortIsAPortOfTheNode(t *testing.T) {
	t.Parallel()
	for node, port := range map[string]uint16{"a": 6443, "b": 7475, "c": 20250} {
		s := service(func(s *view.Service) {
			s.ExternalLocal, s.HealthCheckPort = true, port
			s.Ports = append(s.Ports, view.ServicePort{Name: "line", Protocol: view.TCP, Port: 81, NodePort: port})
		})
		c, o := alive(s)
		o.Node = node
		got, problems := fresh(c, o)
		for key, p := range got.Forwarding.Ports {
			if want := map[string]uint16{"http": 30080, "line": 0}[key.Name]; p.NodePort != want {
				t.Errorf("node %s: %s has the NodePort %d, want %d", node, key.Name, p.NodePort, want)
			}
		}
		if len(got.Health) > 0 {
			t.Errorf("node %s answers health checks on %d", node, port)
		}
		if told := reasonsOf(problems, s.Object()); !slices.Equal(told, []string{desired.ReasonLifelineTaken}) {
			t.Errorf("node %s: told is %v", node, problems)
		}
	}
}

// TestLifelinesForAnyServices: whatever Services ask for, whatever the setting, and in whatever order it came about, no
// lifeline is a destination; and a Service that asks for none and has its addresses from a pool has them all.
func TestLifelinesForAnyServices(t *testing.T) {
	t.Parallel()
	lines := lines()
	rapid.Check(t, func(t *rapid.T) {
		good := service(at(10))
		good.ExternalIPs = good.VIPs
		c, o := alive(good)
		o.ExternalIPs = desired.ExternalIPs(rapid.IntRange(0, 2).Draw(t, "setting"))
		o.ExternalIPCIDRs = prefixes("0.0.0.0/0", "::/0")
		engine := desired.NewEngine(o)
		for revision := range uint64(4) {
			next := *c
			next.Changes = view.Changes{Revision: revision + 1, Since: revision, Touched: map[view.Ref]struct{}{}, Others: revision == 0}
			next.Services = map[view.Ref]*view.Service{good.Ref: good}
			for i := range rapid.IntRange(1, 3).Draw(t, "services") {
				s := service(at(byte(20 + i)))
				s.Namespace = "evil"
				s.Class = rapid.SampledFrom([]string{"", "other"}).Draw(t, "class")
				s.ClusterIPs = append(s.ClusterIPs, ip("fd00:96::99"))
				s.Ports, s.ExternalIPs, s.VIPs = nil, nil, nil
				for _, line := range rapid.SliceOfN(rapid.SampledFrom(lines), 0, 4).Draw(t, "lines") {
					s.Ports = append(s.Ports, view.ServicePort{Name: line.String(), Protocol: view.TCP, Port: line.Port()})
					if rapid.Bool().Draw(t, "in its spec") {
						s.ExternalIPs = append(s.ExternalIPs, line.Addr())
					} else {
						s.VIPs = append(s.VIPs, line.Addr())
					}
				}
				next.Services[s.Ref], next.Touched[s.Ref] = s, struct{}{}
			}
			got, problems := engine.Decide(&next)
			all := destinations(got.Forwarding)
			for _, line := range lines {
				if all[line] {
					t.Fatalf("%s is translated", line)
				}
			}
			for _, a := range good.VIPs {
				if !all[netip.AddrPortFrom(a, 80)] {
					t.Fatalf("%s is not forwarded: %v", a, problems)
				}
			}
			if told := reasonsOf(problems, good.Object()); len(told) > 0 {
				t.Fatalf("a Service that behaves is told %v", told)
			}
		}
	})
}

// TestTheAPIServerMoves: its new address is spared though no Service changed, and the old one is not any more.
func TestTheAPIServerMoves(t *testing.T) {
	t.Parallel()
	s := service(func(s *view.Service) {
		s.ExternalIPs, s.VIPs = ips("203.0.113.1", "203.0.113.2"), nil
		s.Ports[0].Port = 6443
	})
	c, o := alive(s)
	c.Changes = view.Changes{Revision: 1, Others: true}
	engine := desired.NewEngine(o)
	engine.Decide(c)
	moved := *c
	server := view.Ref{Namespace: "default", Name: "kubernetes"}
	moved.Changes = view.Changes{Revision: 2, Since: 1, Touched: map[view.Ref]struct{}{server: {}}}
	moved.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{server: {{Addr: ip("203.0.113.2"), Ports: []view.EndpointPort{{Port: 6443}}}}})
	got, _ := engine.Decide(&moved)
	key := desired.PortKey{Service: s.Ref, Name: "http", Protocol: view.TCP, Family: addr.IPv4}
	if p := got.Forwarding.Ports[key]; !slices.Equal(p.ExternalIPs, ips("203.0.113.1")) {
		t.Errorf("it has %v", p.ExternalIPs)
	}
}

// TestRefusalsAreFewWords: ten thousand addresses make no long text.
func TestRefusalsAreFewWords(t *testing.T) {
	t.Parallel()
	s := service(func(s *view.Service) {
		for i := range 10_000 {
			s.ExternalIPs = append(s.ExternalIPs, netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}))
		}
	})
	c, o := alive(s)
	o.ExternalIPs = desired.NoExternalIPs
	_, problems := fresh(c, o)
	if len(problems) != 1 || len(problems[0].Message) > 2000 || !strings.HasSuffix(problems[0].Message, "and 9992 more") {
		t.Errorf("%d problems, of which one is %.3000s", len(problems), problems[0].Message)
	}
}
