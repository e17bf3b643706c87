package hello

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// opened is a socket on an address of the loopback.
func opened(t *testing.T, at string) *udp {
	t.Helper()
	transport, err := listenUDPOn(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = transport.Close() })
	return transport.(*udp)
}

// gets sends so many datagrams from there, and counts those that come.
func gets(t *testing.T, to *udp, at netip.Addr, from *net.UDPConn, sent int) (come int) {
	t.Helper()
	dest := net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, to.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()))
	buf := make([]byte, maxDatagram)
	for range sent {
		if _, err := from.WriteTo([]byte(magic), dest); err != nil {
			t.Fatal(err)
		}
		for is := true; is; { // on the loopback it has come by now
			var err error
			if _, _, is, err = to.Take(buf); err != nil {
				t.Fatal(err)
			}
			if is {
				come++
			}
		}
	}
	return come
}

// TestTheFilterHearsNodes: all that comes from the port of the hellos and an address of a node, and a part of all else.
func TestTheFilterHearsNodes(t *testing.T) {
	const sent = 64 * strangersPart
	var many []netip.Addr
	for i := range 1000 {
		many = append(many, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), netip.AddrFrom16([16]byte{0: 0x20, 14: byte(i >> 8), 15: byte(i)}))
	}
	for name, c := range map[string]struct {
		at, from string
		nodes    []string
		port     bool // that of the hellos
		all      bool
	}{
		"from a node":                 {"127.0.0.2", "127.0.0.3", []string{"127.0.0.1", "127.0.0.3"}, true, true},
		"from a node of IPv6":         {"::1", "::1", []string{"127.0.0.3", "2001:db8::1", "::1"}, true, true},
		"from a stranger":             {"127.0.0.2", "127.0.0.9", []string{"127.0.0.1", "127.0.0.3"}, true, false},
		"from a stranger of IPv6":     {"::1", "::1", []string{"127.0.0.3", "2001:db8::1"}, true, false},
		"from a pod, by its node":     {"127.0.0.2", "127.0.0.3", []string{"127.0.0.3"}, false, false},
		"by IPv4 to a socket of both": {"", "127.0.0.3", []string{"127.0.0.3", "::1"}, true, true},
		"without a filter":            {"127.0.0.2", "127.0.0.9", nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			port := freePort(t)
			to := opened(t, net.JoinHostPort(c.at, "0"))
			to.port = port
			var nodes []netip.Addr
			for _, a := range c.nodes {
				nodes = append(nodes, netip.MustParseAddr(a))
			}
			if len(nodes) > 0 {
				nodes = append(nodes, many...)
			}
			if err := errors.Join(to.Filter([]netip.Addr{netip.MustParseAddr("192.0.2.1")}, strangersLess), to.Filter(nodes, strangersPart)); err != nil {
				t.Fatal(err)
			}
			local := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 0))
			if c.port {
				local.Port = int(port)
			}
			from, err := net.ListenUDP("udp", local)
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			at := netip.MustParseAddr("127.0.0.1")
			if c.at != "" {
				at = netip.MustParseAddr(c.at)
			}
			come := gets(t, to, at, from, sent)
			if c.all && come != sent || !c.all && (come == 0 || come > sent/strangersPart*4) {
				t.Errorf("%d of %d have come", come, sent)
			}
		})
	}
}

// filtered is a transport whose filter is noted.
type filtered struct {
	Transport

	set  [][]netip.Addr
	part int
}

func (f *filtered) Filter(nodes []netip.Addr, part int) error {
	f.set, f.part = append(f.set, nodes), part
	return nil
}

// TestTheBudgetOfStrangers: the filter is there while too many of their datagrams come, and has the addresses
// of all nodes, those included that a node sends from though its status does not have them.
func TestTheBudgetOfStrangers(t *testing.T) {
	m, err := New(Config{Node: "a", Port: 7475, Interval: testInterval, Multiplier: testMultiplier, Listen: func(context.Context, uint16) (Transport, error) { return nil, net.ErrClosed }})
	if err != nil {
		t.Fatal(err)
	}
	node, other, pod := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.22"), netip.MustParseAddr("10.244.1.9")
	f, now := &filtered{}, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	m.guard.takes(map[string]Peer{"b": {Addrs: []netip.Addr{node}}})
	for _, step := range []struct {
		when string
		do   func()
		want []netip.Addr
		set  bool
	}{
		{"some strangers a second", func() {
			for range 10 * strangersMost {
				m.guard.took(now, pod, false)
				now = now.Add(time.Second / strangersMost)
				m.guarded(now, f)
			}
		}, nil, false},
		{"too many", func() {
			for range strangersMost + 2 {
				m.guard.took(now, pod, false)
			}
		}, []netip.Addr{node}, true},
		{"they go on, and of them a part is heard", func() {
			for range 300 {
				for range 2 * strangersMost / strangersPart {
					m.guard.took(now, pod, false)
				}
				now = now.Add(time.Second)
				m.guarded(now, f)
			}
		}, nil, false},
		{"a node sends from another address", func() { m.guard.took(now, other, true) }, []netip.Addr{node, other}, true},
		{"another node joins", func() {
			m.guard.takes(map[string]Peer{"b": {Addrs: []netip.Addr{node}}, "c": {Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.3")}}})
		}, []netip.Addr{node, netip.MustParseAddr("192.0.2.3"), other}, true},
		{"the part that is heard is too much", func() {
			for range strangersMost + 1 {
				m.guard.took(now, pod, false)
			}
		}, []netip.Addr{node, netip.MustParseAddr("192.0.2.3"), other}, true},
		{"they go on", func() {
			if f.part != strangersLess {
				t.Errorf("a part of %d is heard", f.part)
			}
			for range 300 {
				m.guard.took(now, pod, false)
				m.guard.took(now, pod, false)
				now = now.Add(time.Second)
				m.guarded(now, f)
			}
		}, nil, false},
		{"few have come for a while", func() { now = now.Add(strangersOver + time.Second) }, nil, true},
	} {
		f.set = nil
		step.do()
		m.guarded(now, f)
		if step.set != (len(f.set) == 1) || step.set && !slices.Equal(f.set[0], step.want) {
			t.Errorf("%s: set %v, want %v", step.when, f.set, step.want)
		}
	}
}
