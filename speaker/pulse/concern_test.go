package pulse

import (
	"context"
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/speaker/pulse/api"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
	"fairlead.dev/fairlead/speaker/pulse/socket"
)

// rewiring is around a server whose links change. It counts how often something was settled.
type rewiring struct {
	over

	changed chan struct{}
	settled *int
}

func (r rewiring) Changed() <-chan struct{} { return r.changed }

func (r rewiring) Open([]neighbour.Interface) map[int]error {
	*r.settled++
	return nil
}

// TestPodsComeAndGoUnnoticed: what happens to links that no address has to do with costs nothing, and
// what happens to others is seen.
func TestPodsComeAndGoUnnoticed(t *testing.T) {
	out := &around{view: serving("a", "b"), links: links.NewSnapshot(linkstest.Ethernet(2, true))}
	settled := 0
	r := rewiring{over{out, "ARP"}, make(chan struct{}), &settled}
	s := NewServer(Config{Node: "a", Mesh: out, Links: r, ARP: r, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, LinkCheck: onOne{}, Log: testlog.New(t)})
	named := claim(vip4, "a", "b")
	named[on4(9)] = desired.Candidacy{Candidates: []string{"a"}, Interfaces: []string{"veth7"}}
	s.take(socket.Event{Table: &api.Table{Node: "a", NodeAddrs: []netip.Addr{on4(1)}, Serving: true, Claims: named, Unnumbered: []string{"veth8"}}, Number: 1})
	s.settle(true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.loop(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	bare, nodes := linkstest.PodEnd(10), linkstest.PodEnd(11)
	bare.Prefixes, nodes.Prefixes = nil, []netip.Prefix{netip.PrefixFrom(on4(1), 32)}
	tunnel := linkstest.PodEnd(12)
	tunnel.Prefixes, tunnel.Peered = []netip.Prefix{netip.MustParsePrefix("2001:db8:7::1/128")}, []netip.Prefix{netip.MustParsePrefix("2001:db8:7::1/64")}
	for _, c := range []struct {
		what string
		have []links.Link
		want int
	}{
		{"a pod", []links.Link{linkstest.Ethernet(2, true), linkstest.PodEnd(9)}, 0},
		{"another one", []links.Link{linkstest.Ethernet(2, true), linkstest.PodEnd(9), bare}, 0},
		{"both go", []links.Link{linkstest.Ethernet(2, true)}, 0},
		{"a cable is pulled", []links.Link{linkstest.Ethernet(2, false)}, 1},
		{"a network comes", []links.Link{linkstest.Ethernet(2, false), linkstest.Port(3, "eth3", "203.0.113.1/24", true)}, 1},
		{"a named one comes", []links.Link{linkstest.Ethernet(2, false), linkstest.PodEnd(7)}, 1},
		{"one for a router", []links.Link{linkstest.Ethernet(2, false), linkstest.PodEnd(7), linkstest.PodEnd(8)}, 1},
		{"one with the node's address", []links.Link{linkstest.Ethernet(2, false), linkstest.PodEnd(7), linkstest.PodEnd(8), nodes}, 1},
		{"a tunnel to a peer", []links.Link{linkstest.Ethernet(2, false), linkstest.PodEnd(7), linkstest.PodEnd(8), nodes, tunnel}, 1},
		{"it goes", []links.Link{linkstest.Ethernet(2, false), linkstest.PodEnd(7), linkstest.PodEnd(8), nodes}, 1},
		{"nothing", []links.Link{linkstest.Ethernet(2, false), linkstest.PodEnd(7), linkstest.PodEnd(8), nodes}, 0},
	} {
		if err := s.Healthy(t.Context()); err != nil { // or it is not done with the last
			t.Fatal(err)
		}
		before := settled
		out.links = links.NewSnapshot(c.have...)
		r.changed <- struct{}{}
		if err := s.Healthy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := settled - before; got != c.want {
			t.Errorf("%s: settled %d times, want %d", c.what, got, c.want)
		}
	}
}
