package nftables

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	nft "github.com/google/nftables"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestMoreClientsThanThereIsRoomFor holds that clients who come when the map of session
// affinity is full are served all the same, and that those whom it knows stay where they are.
func TestMoreClientsThanThereIsRoomFor(t *testing.T) {
	t.Parallel()
	const room = 20
	c := newClusterOf(t, func(b *Backend) {
		for _, f := range b.families {
			f.sets[affinity].Size = room
		}
	})
	sticky := blackbox.Service{Name: "sticky", N: 1, Fill: func(a blackbox.Addresses, p *desired.Port) {
		p.Cluster, p.Anywhere, p.Affinity = blackbox.At(blackbox.ServePort, a.P1, a.P2, a.P3), true, time.Hour
	}}
	c.Apply(blackbox.Forwarding(sticky))
	want := blackbox.Forwarding(sticky)
	look := func(f *family) int {
		f.affinityOverflow.looked = f.affinityOverflow.looked.Add(-recount)
		c.Apply(want)
		return c.backend.AffinityOverflows(f.Family)
	}
	for _, f := range c.backend.families {
		if got := look(f); got != 0 {
			t.Errorf("%s: %d maps are full before anybody came", f.Family, got)
		}
		a := blackbox.Plan(f.Family)
		known := c.answers(a, 1, room)
		if got := look(f); got != 0 {
			t.Errorf("%s: %d maps are told of that have room for all", f.Family, got)
		}
		c.answers(a, room+1, 3*room)
		if again := c.answers(a, 1, room); !slices.Equal(again, known) {
			t.Errorf("%s: the clients that were there first were sent to %v, and then to %v", f.Family, known, again)
		}
		if got := look(f); got != 1 {
			t.Errorf("%s: %d maps are told of, want the one that is full", f.Family, got)
		}
		if got := look(f); got != 0 {
			t.Errorf("%s: %d maps are told of though nobody came since", f.Family, got)
		}
		if n := c.remembered(f); n != room {
			t.Errorf("%s: %d clients are remembered, want %d, or this test has not filled the map", f.Family, n, room)
		}
	}
}

// answers are the endpoints that answer clients of these numbers at the VIP of the Service 1.
func (c *cluster) answers(a blackbox.Addresses, first, last int) []string {
	c.t.Helper()
	var servers []string
	for n := first; n <= last; n++ {
		from := netip.AddrPortFrom(blackbox.Nth(a.Crowd, byte(n)), 0)
		flow, err := c.Client.Dial("tcp", from, netip.AddrPortFrom(blackbox.Nth(a.VIPs, 1), 80), blackbox.AnswerIn)
		if err != nil {
			c.t.Fatalf("client %s: %v", from.Addr(), err)
		}
		got, err := flow.Ask()
		flow.Close()
		if err != nil {
			c.t.Fatalf("client %s: %v", from.Addr(), err)
		}
		servers = append(servers, got.Server)
	}
	return servers
}

// remembered counts the clients that the kernel remembers.
func (c *cluster) remembered(f *family) (clients int) {
	c.t.Helper()
	c.Node.Do(func() {
		conn, err := nft.New()
		if err != nil {
			c.t.Error(err)
			return
		}
		elements, err := conn.GetSetElements(f.sets[affinity])
		if err != nil {
			c.t.Error(err)
		}
		clients = len(elements)
	})
	return clients
}
