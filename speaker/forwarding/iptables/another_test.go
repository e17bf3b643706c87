package iptables

import (
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestWhatAnotherSpeakerWroteIsReplaced has a speaker that knows an earlier state write once more beside
// the one that is there, as one whose pod was deleted by force while its node was out of reach. Chains
// and sets have the same names for both, and of most not even the number of rules and elements
// differs. Legacy tables show by nothing but their size that others wrote.
func TestWhatAnotherSpeakerWroteIsReplaced(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		service := func(name string, n byte, endpoint func(a blackbox.Addresses) netip.Addr) blackbox.Service {
			return blackbox.Service{Name: name, N: n, Fill: func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, endpoint(a)), true
			}}
		}
		p1 := func(a blackbox.Addresses) netip.Addr { return a.P1 }
		p2 := func(a blackbox.Addresses) netip.Addr { return a.P2 }
		p3 := func(a blackbox.Addresses) netip.Addr { return a.P3 }
		earlier := []blackbox.Service{service("moved", 40, p2), service("gone", 41, p3), service("gone-too", 43, p3)}
		now := blackbox.Forwarding(service("moved", 40, p1), service("new", 42, p3))
		c.Apply(now)
		c.Node.Do(func() {
			another := New(Config{Log: blackbox.Quiet(), Variant: c.variant})
			if missing, err := another.Apply(t.Context(), blackbox.Forwarding(earlier...)); err != nil || len(missing) > 0 {
				t.Errorf("the other speaker misses %d ports: %v", len(missing), err)
			}
		})
		c.Apply(now)
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			for _, q := range []struct {
				from         *netlab.Host
				to           netip.Addr
				server, seen string
			}{
				{c.Client, blackbox.Nth(a.VIPs, 40), "p1", ""},
				{c.Client, blackbox.Nth(a.VIPs, 42), "p3", ""},
				{c.P2, blackbox.Nth(a.ClusterIPs, 40), "p1", a.P2.String()},
				{c.P2, blackbox.Nth(a.ClusterIPs, 42), "p3", a.P2.String()},
			} {
				got, err := q.from.Ask("tcp", netip.AddrPortFrom(q.to, 80), blackbox.AnswerIn)
				if err != nil || got.Server != q.server || q.seen != "" && got.Seen != q.seen {
					t.Errorf("%s -> %s: %+v, %v, want an answer of %s, which sees %s", q.from.Name, q.to, got, err, q.server, q.seen)
				}
			}
		}
		if missing, err := c.Try(now); err != nil || len(missing) > 0 {
			t.Errorf("afterwards %d ports are missing: %v", len(missing), err)
		}
	})
}
