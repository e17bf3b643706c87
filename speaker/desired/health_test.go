package desired_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestWhatHealthChecksCount holds the number by which a load balancer decides whether to send
// clients here: the distinct addresses of ready endpoints on this very node.
func TestWhatHealthChecksCount(t *testing.T) {
	noPorts := func(e *view.Endpoint) { e.Ports = nil }
	otherPort := func(e *view.Endpoint) { e.Ports = []view.EndpointPort{{Name: "https", Protocol: view.TCP, Port: 8443}} }
	lastPublished := func(e *view.Endpoint) { e.Terminating = true } // and ready, since somebody publishes what is not
	for name, test := range map[string]struct {
		endpoints []view.Endpoint
		ready     int // of IPv4, which alone the Service has
	}{
		"none":                         {nil, 0},
		"one":                          {[]view.Endpoint{endpoint("10.1.0.1", "a")}, 1},
		"two":                          {[]view.Endpoint{endpoint("10.1.0.1", "a"), endpoint("10.1.0.2", "a")}, 2},
		"one in two slices":            {[]view.Endpoint{endpoint("10.1.0.1", "a"), endpoint("10.1.0.1", "a", otherPort)}, 1},
		"first unready, then ready":    {[]view.Endpoint{endpoint("10.1.0.1", "a", dead), endpoint("10.1.0.1", "a", otherPort)}, 1},
		"another node's":               {[]view.Endpoint{endpoint("10.1.0.1", "b")}, 0},
		"nobody's":                     {[]view.Endpoint{endpoint("10.1.0.1", "")}, 0},
		"one here, another elsewhere":  {[]view.Endpoint{endpoint("10.1.0.1", "a"), endpoint("10.1.0.2", "b")}, 1},
		"terminating, still served":    {[]view.Endpoint{endpoint("10.1.0.1", "a", terminating)}, 0},
		"of its former pod":            {[]view.Endpoint{endpoint("10.1.0.1", "a", lastPublished), endpoint("10.1.0.1", "a", dead)}, 0},
		"of its former pod, on b now":  {[]view.Endpoint{endpoint("10.1.0.1", "a", lastPublished), endpoint("10.1.0.1", "b")}, 0},
		"one ready, one terminating":   {[]view.Endpoint{endpoint("10.1.0.1", "a"), endpoint("10.1.0.2", "a", terminating)}, 1},
		"not ready":                    {[]view.Endpoint{endpoint("10.1.0.1", "a", dead)}, 0},
		"of a family it has not":       {[]view.Endpoint{endpoint("fd00:1::1", "a")}, 0},
		"of both families":             {[]view.Endpoint{endpoint("fd00:1::1", "a"), endpoint("10.1.0.1", "a")}, 1},
		"without a port, as by itself": {[]view.Endpoint{endpoint("10.1.0.1", "a", noPorts)}, 0},
	} {
		got, _ := fresh(checked(test.endpoints...), desired.Options{Node: "a"})
		check, has := got.Health[web]
		if want := map[addr.Family]int{addr.IPv4: test.ready}; !has || check.Port != 30100 || !maps.Equal(check.Ready, want) {
			t.Errorf("%s: %+v, want %v on port 30100", name, check, want)
		}
	}
}

// TestHealthChecksCountByFamily has a Service of both families.
func TestHealthChecksCountByFamily(t *testing.T) {
	c := checked(endpoint("10.1.0.1", "a"), endpoint("10.1.0.2", "a"), endpoint("fd00:1::1", "a"), endpoint("fd00:1::2", "b"))
	c.Services[web].ClusterIPs = ips("10.96.0.1", "fd00:96::1")
	got, _ := fresh(c, desired.Options{Node: "a"})
	if want := map[addr.Family]int{addr.IPv4: 2, addr.IPv6: 1}; !maps.Equal(got.Health[web].Ready, want) {
		t.Errorf("%v, want %v", got.Health[web].Ready, want)
	}
	if ports := got.Forwarding.HealthPorts; len(ports) != 1 || ports[0] != 30100 {
		t.Errorf("the firewall lets in %v, want port 30100 once", ports)
	}
}

// TestHealthChecksThatNobodyAsksFor are those of Services without a port of their own, and of
// another proxy, which answers itself.
func TestHealthChecksThatNobodyAsksFor(t *testing.T) {
	for name, change := range map[string]func(*view.Service){
		"no port":       func(s *view.Service) { s.HealthCheckPort = 0 },
		"another proxy": func(s *view.Service) { s.ProxiedElsewhere = true },
	} {
		c := checked(endpoint("10.1.0.1", "a"))
		change(c.Services[web])
		if got, _ := fresh(c, desired.Options{Node: "a"}); len(got.Health)+len(got.Forwarding.HealthPorts) != 0 {
			t.Errorf("%s: %v", name, got.Health)
		}
	}
}

// TestWhereHealthChecksAnswer holds that they do where NodePorts do once somebody has said where that is,
// and else everywhere.
func TestWhereHealthChecksAnswer(t *testing.T) {
	wide := prefixes("0.0.0.0/0", "::/0")
	c := checked(endpoint("10.1.0.1", "a"))
	c.Nodes["a"].Addresses = ips("192.0.2.1", "2001:db8::1")
	own := ips("127.0.0.1", "192.0.2.1", "192.0.2.9", "198.51.100.7", "::1", "2001:db8::1", "fe80::1%3")
	for name, tt := range map[string]struct {
		primary       bool
		cidrs, within []netip.Prefix
		addrs         []netip.Addr
	}{
		"nothing said":      {false, nil, wide, ips("0.0.0.0", "::")},
		"everywhere":        {false, wide, wide, ips("0.0.0.0", "::")},
		"in halves":         {false, prefixes("0.0.0.0/1", "128.0.0.0/1"), prefixes("0.0.0.0/0"), ips("0.0.0.0")},
		"with localhost":    {false, prefixes("0.0.0.0/0", "127.0.0.0/8"), prefixes("0.0.0.0/0"), ips("0.0.0.0")},
		"primary":           {true, nil, prefixes("192.0.2.1/32", "2001:db8::1/128"), ips("192.0.2.1", "2001:db8::1")},
		"prefixes":          {false, prefixes("192.0.2.0/24", "fe80::/10"), prefixes("192.0.2.0/24", "fe80::/10"), ips("192.0.2.1", "192.0.2.9", "fe80::1%3")},
		"localhost":         {false, prefixes("127.0.0.0/8"), prefixes("127.0.0.0/8"), ips("127.0.0.1")},
		"one that lo lacks": {false, prefixes("127.0.0.5/32"), prefixes("127.0.0.5/32"), ips("127.0.0.5")},
		"more than it":      {false, prefixes("126.0.0.0/7"), prefixes("126.0.0.0/8"), nil},
		"of another node":   {false, prefixes("203.0.113.0/24"), prefixes("203.0.113.0/24"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := fresh(c, desired.Options{Node: "a", NodePortPrimary: tt.primary, NodePortCIDRs: tt.cidrs})
			within := got.Forwarding.HealthPrefixes()
			if diff := cmp.Diff(tt.within, within, compare); diff != "" {
				t.Errorf("prefixes (-want +got):\n%s", diff)
			}
			if addrs := desired.HealthAddrs(within, own); !slices.Equal(addrs, tt.addrs) {
				t.Errorf("addresses %v, want %v", addrs, tt.addrs)
			}
		})
	}
}

// checked is a cluster with a Service of IPv4 that has a healthCheckNodePort.
func checked(endpoints ...view.Endpoint) *view.Cluster {
	return cluster(service(func(s *view.Service) {
		s.ClusterIPs, s.HealthCheckPort, s.ExternalLocal = ips("10.96.0.1"), 30100, true
	}), endpoints...)
}
