package pulse

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/speaker/pulse/api"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
	"fairlead.dev/fairlead/speaker/pulse/socket"
)

// podEnd is the host's end of a pod's cable, as some network plugins set it up: it has the
// address of the pods' gateway.
func podEnd(index int) links.Link {
	return links.Link{
		Index: index, Name: fmt.Sprintf("veth%d", index), MAC: net.HardwareAddr{2, 1, 0, 0, byte(index >> 8), byte(index)}, Kind: "veth",
		Up: true, Running: true, Broadcast: true,
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/32"), netip.MustParsePrefix("fe80::1/64")},
	}
}

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
	out := &around{view: serving("a", "b"), links: links.NewSnapshot(ethernet(2, true))}
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
	bare, nodes := podEnd(10), podEnd(11)
	bare.Prefixes, nodes.Prefixes = nil, []netip.Prefix{netip.PrefixFrom(on4(1), 32)}
	tunnel := podEnd(12)
	tunnel.Prefixes, tunnel.Peered = []netip.Prefix{netip.MustParsePrefix("2001:db8:7::1/128")}, []netip.Prefix{netip.MustParsePrefix("2001:db8:7::1/64")}
	for _, c := range []struct {
		what string
		have []links.Link
		want int
	}{
		{"a pod", []links.Link{ethernet(2, true), podEnd(9)}, 0},
		{"another one", []links.Link{ethernet(2, true), podEnd(9), bare}, 0},
		{"both go", []links.Link{ethernet(2, true)}, 0},
		{"a cable is pulled", []links.Link{ethernet(2, false)}, 1},
		{"a network comes", []links.Link{ethernet(2, false), port(3, "eth3", "203.0.113.1/24", true)}, 1},
		{"a named one comes", []links.Link{ethernet(2, false), podEnd(7)}, 1},
		{"one for a router", []links.Link{ethernet(2, false), podEnd(7), podEnd(8)}, 1},
		{"one with the node's address", []links.Link{ethernet(2, false), podEnd(7), podEnd(8), nodes}, 1},
		{"a tunnel to a peer", []links.Link{ethernet(2, false), podEnd(7), podEnd(8), nodes, tunnel}, 1},
		{"it goes", []links.Link{ethernet(2, false), podEnd(7), podEnd(8), nodes}, 1},
		{"nothing", []links.Link{ethernet(2, false), podEnd(7), podEnd(8), nodes}, 0},
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
