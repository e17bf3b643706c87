package pulse

import (
	"maps"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
)

// lost are addresses of a network that no node has, as where an L2Advertisement misspells its interfaces.
func lost(four, six int, nodes ...string) map[netip.Addr]desired.Candidacy {
	claims := map[netip.Addr]desired.Candidacy{}
	for i := range max(four, six) {
		a, b := netip.AddrFrom4([4]byte{203, 0, byte(113 + i>>8), byte(i)}), netip.MustParseAddr("2001:db8:9::").As16()
		b[14], b[15] = byte(i>>8), byte(i)
		for a, is := range map[netip.Addr]bool{a: i < four, netip.AddrFrom16(b): i < six} {
			if is {
				claims[a] = desired.Candidacy{Candidates: election.Rank(a, nodes), Interfaces: []string{"misspelt0"}}
			}
		}
	}
	return claims
}

// TestANetworkThatNobodyHasCostsNoOther: however many addresses no node can answer for, those that
// nodes can go on to be answered for by one each.
func TestANetworkThatNobodyHasCostsNoOther(t *testing.T) {
	for name, many := range map[string]struct{ four, six int }{
		"what can be listed": {100, 20},
		"IPv4":               {300, 0},
		"IPv6":               {0, 70},
		"both":               {300, 70},
		"thousands":          {3000, 3000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newApartCluster(t, 3, 4)
				defer c.close()
				c.run(5 * time.Second)
				c.longestDouble, c.longestNobody, c.moves = 0, 0, 0
				for i, n := range c.nodes {
					table := c.table(i)
					maps.Copy(table.Claims, lost(many.four, many.six, c.nodes[0].name, c.nodes[1].name, c.nodes[2].name))
					n.says(table)
				}
				c.run(2 * time.Second)
				c.expectOne("beside a network that nobody has")
				if c.moves > 0 || c.longestNobody > 0 {
					t.Errorf("%d moves, nobody answered for %v", c.moves, c.longestNobody)
				}
				for _, n := range c.nodes {
					if got := len(n.state().Unable); got != many.four+many.six {
						t.Errorf("%s is unable to serve %d addresses, want %d", n.name, got, many.four+many.six)
					}
				}
			})
		})
	}
}
