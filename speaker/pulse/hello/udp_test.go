package hello

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"
)

// freePort gives a UDP port that nobody uses on any address of this machine.
func freePort(t *testing.T) uint16 {
	t.Helper()
	conn, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

// TestUDP runs two meshes over real sockets on two loopback addresses.
func TestUDP(t *testing.T) {
	addrs := map[string]netip.Addr{"a": netip.MustParseAddr("127.0.0.2"), "b": netip.MustParseAddr("127.0.0.3")}
	port := freePort(t)
	begin := func(node, peer string) (*Mesh, context.CancelFunc) {
		m, err := New(Config{
			Node: node, Port: port, Interval: testInterval, Multiplier: testMultiplier,
			Listen: func(ctx context.Context, port uint16) (Transport, error) {
				return listenUDPOn(ctx, netip.AddrPortFrom(addrs[node], port).String())
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		m.Set(Wanted{Key: testKey, Serving: true, Peers: map[string]Peer{peer: {Addrs: []netip.Addr{addrs[peer]}}}})
		return m, cancel
	}
	a, _ := begin("a", "b")
	b, stopB := begin("b", "a")
	const patience = time.Minute // for a machine that is busy
	await(t, a, patience, "a hears b", hears("b"))
	await(t, b, patience, "b hears a", hears("a"))
	b.Goodbye(0)
	await(t, a, patience, "b leaves", func(v View) bool { return !v.CanServe("b", vip) })
	stopB()
	await(t, a, patience, "b is gone", gone("b"))
}

// TestUDPBothFamilies: the one socket sends and receives IPv4 and IPv6.
func TestUDPBothFamilies(t *testing.T) {
	port := freePort(t)
	transport, err := listenUDP(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	for _, a := range []string{"127.0.0.1", "::1"} {
		t.Run(a, func(t *testing.T) {
			to := netip.AddrPortFrom(netip.MustParseAddr(a), port)
			if err := transport.Send(to, []byte(a)); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 100)
			n, from, err := receive(transport, buf)
			if err != nil {
				t.Fatal(err)
			}
			if string(buf[:n]) != a || from.Addr().Unmap() != to.Addr() {
				t.Errorf("received %q from %v", buf[:n], from)
			}
		})
	}
	if err := transport.Send(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 0), []byte("x")); err == nil {
		t.Error("a send to port 0 did not fail")
	}
}

func TestUDPIPv4Only(t *testing.T) {
	transport, err := listenUDPOn(t.Context(), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 0).String())
	if err != nil {
		t.Fatal(err)
	}
	if err := transport.Send(netip.MustParseAddrPort("[2001:db8::1]:7475"), []byte("x")); err == nil {
		t.Error("IPv6 through an IPv4 socket did not fail")
	}
	if err := transport.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := receive(transport, make([]byte, 1)); err == nil {
		t.Error("a closed socket still receives")
	}
}

// receive waits for a datagram.
func receive(t Transport, buf []byte) (int, netip.AddrPort, error) {
	for {
		if err := t.Wait(); err != nil {
			return 0, netip.AddrPort{}, err
		}
		if n, from, come, err := t.Take(buf); come || err != nil {
			return n, from, err
		}
	}
}
