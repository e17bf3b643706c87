package iptables

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
)

// TestMoreClientsThanThereIsRoomFor holds that clients who come when the sets of session
// affinity are full are served all the same.
func TestMoreClientsThanThereIsRoomFor(t *testing.T) {
	const room, clients = 10, 120
	eachVariant(t, func(t *testing.T, c *cluster) {
		for _, f := range c.backend.families {
			f.sets.room = room
		}
		want := blackbox.Forwarding(blackbox.Service{Name: "sticky", N: 1, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere, p.Affinity = blackbox.At(blackbox.ServePort, a.P1, a.P2, a.P3), true, time.Hour
		}})
		c.Apply(want)
		forgetful := func(f addr.Family) int {
			for _, each := range c.backend.families {
				each.sets.counted = time.Time{}
			}
			c.Apply(want)
			return c.backend.Forgetful(f)
		}
		for _, f := range addr.Families() {
			if got := forgetful(f); got != 0 {
				t.Errorf("%s: %d sets are told of before anybody came", f, got)
			}
			a := blackbox.Plan(f)
			for n := range clients {
				from := netip.AddrPortFrom(blackbox.Nth(a.Crowd, byte(n+1)), 0)
				flow, err := c.Client.Dial("tcp", from, netip.AddrPortFrom(blackbox.Nth(a.VIPs, 1), 80), blackbox.AnswerIn)
				if err != nil {
					t.Fatalf("client %s: %v", from.Addr(), err)
				}
				if _, err := flow.Ask(); err != nil {
					t.Fatalf("client %s: %v", from.Addr(), err)
				}
				flow.Close()
			}
			if full := c.full(f, room); full != 3 {
				t.Errorf("%s: %d sets are full, want those of the three endpoints, or this test has not filled them", f, full)
			}
			if got := forgetful(f); got != 3 {
				t.Errorf("%s: %d sets are told of, want all three", f, got)
			}
		}
		want = blackbox.Forwarding()
		if c.Apply(want); forgetful(addr.IPv4) != 0 {
			t.Error("sets are told of that are gone")
		}
	})
}

// full counts the sets of clients of a family that have so many.
func (c *cluster) full(f addr.Family, clients int) (full int) {
	c.t.Helper()
	c.Node.Do(func() {
		all, err := ipset.All()
		if err != nil {
			c.t.Error(err)
		}
		for _, head := range all {
			if head.Family == f && strings.HasPrefix(head.Name, ours+"C") && head.Timeout > 0 && head.Elements >= clients {
				full++
			}
		}
	})
	return full
}
