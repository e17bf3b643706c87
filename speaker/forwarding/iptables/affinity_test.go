package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
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
			return c.backend.AffinityOverflows(f)
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

// TestListsOfClientsAreBoundedTogether: where lists hold more clients together than they may, those with most are emptied, which is
// told, and no others; all clients are served.
func TestListsOfClientsAreBoundedTogether(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		for _, f := range c.backend.families {
			f.sets.all = 20
		}
		one := func(name string, n, vip byte, at func(blackbox.Addresses) netip.Addr) blackbox.Service {
			return blackbox.Service{Name: name, N: n, Fill: func(a blackbox.Addresses, p *desired.Port) {
				p.VIPs, p.Cluster, p.Anywhere, p.Affinity = []netip.Addr{blackbox.Nth(a.VIPs, vip)}, blackbox.At(blackbox.ServePort, at(a)), true, time.Hour
			}}
		}
		want := blackbox.Forwarding(
			one("few", 1, 1, func(a blackbox.Addresses) netip.Addr { return a.P1 }), one("many", 2, 2, func(a blackbox.Addresses) netip.Addr { return a.P2 }))
		c.Apply(want)
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			come := func(vip byte, clients int) {
				for n := range clients {
					from := netip.AddrPortFrom(blackbox.Nth(a.Crowd, byte(n+1)), 0)
					flow, err := c.Client.Dial("tcp", from, netip.AddrPortFrom(blackbox.Nth(a.VIPs, vip), 80), blackbox.AnswerIn)
					if err != nil {
						t.Fatalf("client %s: %v", from.Addr(), err)
					}
					if _, err := flow.Ask(); err != nil {
						t.Fatalf("client %s: %v", from.Addr(), err)
					}
					flow.Close()
				}
			}
			look := func() int {
				for _, each := range c.backend.families {
					each.sets.counted = time.Time{}
				}
				c.Apply(want)
				return c.backend.AffinityOverflows(f)
			}
			come(1, 5)
			come(2, 15)
			if told, lists := look(), c.full(f, 1); told != 0 || lists != 2 {
				t.Errorf("%s: within the bound %d lists are told of, and %d have clients, want none and both", f, told, lists)
			}
			come(2, 16)
			if told, lists := look(), c.full(f, 1); told != 1 || lists != 1 || c.full(f, 6) != 0 {
				t.Errorf("%s: beyond the bound %d lists are told of, and %d have clients, want the long one and the short one", f, told, lists)
			}
			if told := look(); told != 0 {
				t.Errorf("%s: %d lists are told of that hold no more than they may", f, told)
			}
			come(2, 3)
		}
	})
}

// TestListsOfClientsComeInTheOrderOfTheirServices makes the lists that are missing in one order, the
// same each time: the kernel may have no room for all.
func TestListsOfClientsComeInTheOrderOfTheirServices(t *testing.T) {
	f := newFamily(style{addr.IPv4, 1, false}, commands{NFT, addr.IPv4}, nil, blackbox.Quiet())
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
	for i := range 30 {
		key := desired.PortKey{Service: view.Ref{Namespace: "shop", Name: fmt.Sprintf("s%02d", i)}, Protocol: view.TCP, Family: addr.IPv4}
		endpoint := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)
		want.Ports[key] = desired.Port{
			ClusterIP: netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), Port: 80, Affinity: time.Hour, Anywhere: true,
			Cluster: []netip.AddrPort{endpoint, netip.AddrPortFrom(endpoint.Addr(), 81)},
		}
	}
	changes := want.Changes(nil, 0, nil)
	var inOrder []string
	for _, c := range changes {
		inOrder = append(inOrder, f.render(c.Key, *c.To).clients...)
	}
	f.stage(changes)
	f.sets.kernel = map[string]struct{}{inOrder[7]: {}, inOrder[50]: {}} // they have theirs
	lacking := slices.DeleteFunc(slices.Clone(inOrder), func(name string) bool { _, has := f.sets.kernel[name]; return has })
	if got := f.sets.lacking(); len(lacking) != 58 || !slices.Equal(got, lacking) {
		t.Errorf("lists come in the order\n%v, want\n%v", got, lacking)
	}
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
			if head.Family == f && strings.HasPrefix(head.Name, ours+"AFF") && head.Timeout > 0 && head.Elements >= clients {
				full++
			}
		}
	})
	return full
}
