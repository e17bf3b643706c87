package blackbox_test

import (
	"net/netip"
	"testing"

	"golang.org/x/sync/errgroup"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// podDetection is a way to tell pods from strangers, or masqueradeAll, and what comes of it.
type podDetection struct {
	name  string
	pods  func(a blackbox.Addresses) []netip.Prefix // that addresses tell; nil: all pods
	links desired.Links
	all   bool // masquerade
	table []expectation
}

// podDetections are all that there are, and some of them together. The node hears p1 and p2
// by interfaces of these names, and p3 by "peer".
func podDetections() []podDetection {
	nobody := func(blackbox.Addresses) []netip.Prefix { return nil }
	// Anybody may be a pod, and nobody is known to be one.
	unknown := []expectation{
		{"p1", "clusterIP", 1, "p1 p2 p3", itself, nil},
		{"p2", "clusterIP", 8, "p1", itself, nil},
		{"p1", "clusterIP", 8, "p1", masked, nil}, // a hairpin
		{"p3", "clusterIP", 8, "p1", itself, nil},
		{"node", "clusterIP", 1, "p1 p2 p3", itself, nil},
		{"client", "clusterIP", 1, "p1 p2 p3", itself, nil},
		{"p2", "vip", 2, "p1", itself, nil},
		{"p2", "nodePort", 2, "p1", itself, nil},
		{"node", "vip", 2, "p1 p3", masked, nil},
		{"client", "vip", 2, "p1", itself, nil},
		{"client", "vip", 1, "p1 p2 p3", masked, nil},
		{"client", "nodePort", 1, "p1 p2 p3", masked, nil},
		{"p1", "nodePort", 1, "p1 p2 p3", masked, nil},
	}
	return []podDetection{
		{name: "not known", pods: nobody, table: unknown},
		{name: "addresses of this node's pods", pods: func(a blackbox.Addresses) []netip.Prefix {
			bits := 24
			if a.Family == addr.IPv6 {
				bits = 64
			}
			return []netip.Prefix{netip.PrefixFrom(a.P1, bits).Masked()}
		}, table: []expectation{
			{"p1", "clusterIP", 1, "p1 p2 p3", itself, nil},
			{"p3", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"p2", "vip", 2, "p1 p3", itself, nil},
			{"p3", "vip", 2, "p1", itself, nil},
		}},
		{name: "not known any more", pods: nobody, table: unknown},
		{name: "known again in both families", table: []expectation{
			{"p1", "clusterIP", 1, "p1 p2 p3", itself, nil},
			{"client", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"node", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"p2", "vip", 2, "p1 p3", itself, nil},
		}},
		{name: "not known in IPv4", pods: func(a blackbox.Addresses) []netip.Prefix {
			if a.Family == addr.IPv4 {
				return nil
			}
			return []netip.Prefix{a.Pods}
		}, table: []expectation{
			{"p2", "clusterIP", 8, "p1", itself, nil},
			{"client", "nodePort", 1, "p1 p2 p3", masked, nil},
		}},
		{name: "not known, masquerade all", pods: nobody, all: true, table: []expectation{
			{"p1", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"client", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"p2", "vip", 2, "p1", itself, nil},
		}},
		{name: "one interface", pods: nobody, links: desired.Links{Name: "p1"}, table: []expectation{
			{"p1", "clusterIP", 1, "p1 p2 p3", itself, nil},
			{"p2", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"node", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"client", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"p1", "vip", 2, "p1 p3", itself, nil},
			{"p2", "vip", 2, "p1", itself, nil},
			{"node", "vip", 2, "p1 p3", masked, nil},
			{"client", "vip", 2, "p1", itself, nil},
			{"p2", "nodePort", 2, "p1", itself, nil},
			{"p1", "nodePort", 1, "p1 p2 p3", masked, nil},
		}},
		{name: "interfaces by prefix", pods: nobody, links: desired.Links{Name: "p", Prefix: true}, table: []expectation{
			{"p1", "clusterIP", 1, "p1 p2 p3", itself, nil},
			{"p2", "clusterIP", 1, "p1 p2 p3", itself, nil},
			{"node", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"client", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"p2", "vip", 2, "p1 p3", itself, nil},
			{"client", "vip", 2, "p1", itself, nil},
			{"p1", "vip", 3, "p3", itself, nil},
			{"node", "vip", 3, "p3", masked, nil},
		}},
		{name: "an interface that is not there", pods: nobody, links: desired.Links{Name: "cbr0"}, table: []expectation{
			{"p1", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"p2", "vip", 2, "p1", itself, nil},
		}},
		{name: "masquerade all", all: true, table: []expectation{
			{"p1", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"p2", "clusterIP", 8, "p1", masked, nil},
			{"client", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"p2", "vip", 2, "p1 p3", itself, nil},
			{"p2", "nodePort", 2, "p1 p3", itself, nil},
			{"client", "vip", 2, "p1", itself, nil},
		}},
		{name: "masquerade all, one interface", pods: nobody, links: desired.Links{Name: "p2"}, all: true, table: []expectation{
			{"p2", "clusterIP", 1, "p1 p2 p3", masked, nil},
			{"p2", "clusterIP", 2, "p1 p3", masked, nil},
			{"p2", "vip", 2, "p1 p3", itself, nil},
			{"p1", "vip", 2, "p1", itself, nil},
		}},
	}
}

// of has a wanted state tell pods this way.
func (d podDetection) of(want desired.Forwarding) desired.Forwarding {
	if d.pods != nil {
		want.Pods = nil
		for _, f := range addr.Families() {
			want.Pods = append(want.Pods, d.pods(blackbox.Plan(f))...)
		}
	}
	for key, p := range want.Ports {
		p.PodLinks, p.MasqueradeAll = d.links, d.all
		want.Ports[key] = p
	}
	return want
}

// TestWhoIsAPod has each way to tell pods from strangers, one after the other on one node,
// and sees whom the pods see and which of them are reached.
func TestWhoIsAPod(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		for _, d := range podDetections() {
			want := d.of(everyKind())
			c.Apply(want)
			var all asking
			for _, f := range addr.Families() {
				a := blackbox.Plan(f)
				for _, s := range c.senders(f) {
					for _, service := range []string{"cluster", "local", "elsewhere", "inside-local", "inside-elsewhere", "all-local", "admits-pods", "sticky"} {
						for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
							p := want.Ports[blackbox.Key(service, protocol, f)]
							for _, to := range []netip.AddrPort{
								netip.AddrPortFrom(p.ClusterIP, p.Port), netip.AddrPortFrom(p.VIPs[0], p.Port),
								netip.AddrPortFrom(p.ExternalIPs[0], p.Port), netip.AddrPortFrom(a.Node, p.NodePort),
							} {
								all.add(func() error { return c.expect(s, protocol, to, want) })
							}
						}
					}
				}
			}
			if err := all.all(); err != nil {
				t.Errorf("%s: %v", d.name, err)
			}
		}
	})
}

// TestOracleOnPods holds the oracle to what people can read, for each way.
func TestOracleOnPods(t *testing.T) {
	for _, d := range podDetections() {
		t.Run(d.name, func(t *testing.T) { believe(t, d.of(blackbox.Forwarding(blackbox.Services()...)), d.table) })
	}
}

// TestPodsKeepTheirAddressWhileOthersAreTold has it known and forgotten again who is a pod, while
// a pod asks without a pause: to its ClusterIP it is one all the time.
func TestPodsKeepTheirAddressWhileOthersAreTold(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		known, unknown := everyKind(), everyKind()
		unknown.Pods = nil
		c.Apply(known)
		over := make(chan struct{})
		var all errgroup.Group
		for _, f := range addr.Families() {
			to := netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(f).ClusterIPs, 1), 80)
			all.Go(func() error {
				for {
					if err := c.expect(c.senders(f)[4], view.UDP, to, known); err != nil {
						return err
					}
					select {
					case <-over:
						return nil
					default:
					}
				}
			})
		}
		for range 10 {
			c.Apply(unknown)
			c.Apply(known)
		}
		close(over)
		if err := all.Wait(); err != nil {
			t.Error(err)
		}
	})
}
