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

// TestWhichExternalIPsAreForwarded by the setting, and by what else has the address.
func TestWhichExternalIPsAreForwarded(t *testing.T) {
	t.Parallel()
	const free, others, own, reserved, ownReserved, limited, ownLimited, outside, node = "192.0.2.100", "192.0.2.101", "192.0.2.102",
		"192.0.2.103", "192.0.2.104", "192.0.3.1", "192.0.3.2", "203.0.113.7", "198.51.100.12"
	all := ips(free, others, own, reserved, ownReserved, limited, ownLimited, outside, node, "2001:db8::100", "2001:db8:9::1", "127.0.0.1", "::1", "224.0.0.1", "fe80::1")
	given := ips(own, ownReserved, ownLimited)
	for name, tt := range map[string]struct {
		setting desired.ExternalIPs
		want    []netip.Addr
	}{
		"All":   {desired.AllExternalIPs, append(ips(free, limited, outside, node, "2001:db8::100", "2001:db8:9::1"), given...)},
		"Pools": {desired.PoolExternalIPs, append(ips(free, "2001:db8::100"), given...)},
		"CIDRs": {desired.ListedExternalIPs, append(ips(outside, "2001:db8:9::1"), given...)},
		"None":  {desired.NoExternalIPs, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asks := service(func(s *view.Service) { s.Type, s.VIPs, s.ExternalIPs = view.ClusterIP, nil, all })
			beside := service(at(20), func(s *view.Service) { s.VIPs = ips(own, ownLimited) })
			rival := service(at(21), func(s *view.Service) { s.Namespace, s.VIPs = "other", ips(others) })
			c, o := alive(asks, beside, rival)
			c.Pools["limited"] = &view.Pool{Name: "limited", Ranges: ranges("192.0.3.0/24"), MaxPerNamespace: 4}
			c.Pools["nodes"] = &view.Pool{Name: "nodes", Ranges: ranges(node + "/32")}
			c.Reservations = map[view.Ref]*view.Reservation{
				{Namespace: "other", Name: "r"}: {Held: ips(reserved)}, {Namespace: "shop", Name: "r"}: {Held: ips(ownReserved)},
			}
			o.ExternalIPs, o.ExternalIPCIDRs = tt.setting, prefixes("203.0.113.0/24", "2001:db8:9::/64", "192.0.2.101/32", "192.0.2.103/32")
			got, problems := fresh(c, o)
			var forwarded []netip.Addr
			for key, p := range got.Forwarding.Ports {
				if key.Service == asks.Ref {
					forwarded = append(forwarded, p.ExternalIPs...)
				}
			}
			slices.SortFunc(forwarded, netip.Addr.Compare)
			slices.SortFunc(tt.want, netip.Addr.Compare)
			if !slices.Equal(forwarded, tt.want) {
				t.Errorf("forwarded are %v, want %v", forwarded, tt.want)
			}
			told := reasonsOf(problems, asks.Object())
			if !slices.Equal(told, []string{desired.ReasonExternalIPRefused}) {
				t.Errorf("told is %v", problems)
			}
			for _, p := range problems {
				if strings.Contains(p.Message, rival.Name) && p.Object == asks.Object() {
					t.Errorf("a namespace is told of another's Service: %s", p.Message)
				}
			}
		})
	}
}

// TestAnExternalIPThatAnotherServiceGets: what a load balancer gave comes first, and the one that only lists the address is
// told, in whatever order they come, and for as long as they have a port in common.
func TestAnExternalIPThatAnotherServiceGets(t *testing.T) {
	t.Parallel()
	lists := service(func(s *view.Service) {
		s.Type, s.VIPs, s.ExternalIPs = view.ClusterIP, nil, ips("192.0.2.100", "2001:db8::100")
	})
	has := service(at(20), func(s *view.Service) { s.VIPs = ips("192.0.2.100") })
	apart := service(at(20), func(s *view.Service) {
		s.VIPs = has.VIPs
		s.Ports = []view.ServicePort{{Name: "alt", Protocol: view.TCP, Port: 8080}}
	})
	c, o := alive(lists)
	engine := desired.NewEngine(o)
	for step, other := range []*view.Service{nil, has, apart, has, nil} {
		now := *c
		now.Services = map[view.Ref]*view.Service{lists.Ref: lists}
		if other != nil {
			now.Services[other.Ref] = other
		}
		now.Changes = view.Changes{Revision: uint64(step + 1), Since: uint64(step), Touched: map[view.Ref]struct{}{has.Ref: {}}}
		_, problems := engine.Decide(&now)
		var told []string
		for _, p := range problems {
			if p.Object == lists.Object() {
				told = append(told, p.Message)
			}
		}
		want := 0
		if other == has {
			want = 1
		}
		if len(told) != want || want > 0 && !strings.Contains(told[0], "port 80 of 192.0.2.100 is Service "+has.String()+"'s") {
			t.Errorf("step %d: told %q", step, told)
		}
	}
}

// TestNothingIsRefusedForPoolsThatAreNotRead: a speaker that begins anew takes nothing out of the kernel before it knows
// the pools.
func TestNothingIsRefusedForPoolsThatAreNotRead(t *testing.T) {
	t.Parallel()
	s := service(func(s *view.Service) { s.ExternalIPs = ips("203.0.113.7") })
	c, o := alive(s)
	o.ExternalIPs = desired.PoolExternalIPs
	engine := desired.NewEngine(o)
	for revision, configured := range []bool{false, true} {
		now := *c
		now.Configured = configured
		now.Changes = view.Changes{Revision: uint64(revision + 1), Since: uint64(revision), Others: true}
		got, _ := engine.Decide(&now)
		if is := destinations(got.Forwarding)[netip.MustParseAddrPort("203.0.113.7:80")]; is == configured {
			t.Errorf("pools are read: %t, it is forwarded: %t", configured, is)
		}
	}
}

// TestWhatAStatusMayHave has other programs than the controller write addresses into it.
func TestWhatAStatusMayHave(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		about   string
		class   string
		address string
		is      bool
	}{
		{"of a pool", "", "192.0.2.50", true},
		{"of a pool that is gone", "", "203.0.113.50", true},
		{"of another load balancer", "other", "203.0.113.50", true},
		{"of another load balancer", "other", "2001:db8:50::1", true},
		{"of a pool, by another load balancer", "other", "192.0.2.50", true},
		{"another namespace's", "other", "192.0.2.60", false},
		{"shared with another namespace", "", "192.0.2.60", true},
		{"reserved by another namespace", "other", "192.0.2.61", false},
		{"loopback", "other", "127.0.0.1", false},
		{"loopback", "", "::1", false},
		{"link-local", "other", "169.254.169.254", false},
		{"link-local", "other", "fe80::1", false},
		{"link-local of a pool", "", "169.254.7.1", true},
		{"multicast", "other", "224.0.0.5", false},
		{"multicast", "", "ff02::5", false},
		{"unspecified", "other", "0.0.0.0", false},
		{"broadcast", "", "255.255.255.255", false},
		{"a node's", "other", "198.51.100.12", false},
		{"a node's", "", "2001:db8:ff00::c", false},
		{"a node's ExternalIP", "other", "203.0.113.33", false},
		{"a node's that a pool has given", "", "198.51.100.13", true},
		{"a node's that a pool has, by another load balancer", "other", "198.51.100.13", false},
	} {
		s := service(func(s *view.Service) { s.Class, s.VIPs = tt.class, ips(tt.address) })
		rival := service(at(21), func(s *view.Service) { s.Namespace, s.VIPs = "other", ips("192.0.2.60") })
		c, o := alive(s, rival)
		c.Pools["odd"] = &view.Pool{Name: "odd", Ranges: ranges("169.254.7.0/24", "198.51.100.13-198.51.100.13")}
		c.Reservations = map[view.Ref]*view.Reservation{{Namespace: "other", Name: "r"}: {Held: ips("192.0.2.61")}}
		got, problems := fresh(c, o)
		found := false
		for key, p := range got.Forwarding.Ports {
			found = found || key.Service == s.Ref && slices.Contains(p.VIPs, ip(tt.address))
		}
		if told := slices.Equal(reasonsOf(problems, s.Object()), []string{desired.ReasonVIPRefused}); found != tt.is || told == tt.is {
			t.Errorf("%s (class %q): %s is forwarded: %t, want %t; told is %v", tt.about, tt.class, tt.address, found, tt.is, problems)
		}
	}
}
