package bgp

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/desired"
)

// TestPassivePeersLookAtTheFirstPacket: of a router that must be next to us nothing is read that
// came in before its TTL was looked at.
func TestPassivePeersLookAtTheFirstPacket(t *testing.T) {
	if runsApart(t) {
		return
	}
	for name, router := range map[string]netip.Addr{"IPv4": netip.MustParseAddr("127.0.0.44"), "IPv6": netip.IPv6Loopback()} {
		t.Run(name, func(t *testing.T) {
			s := newListener(t)
			id := desired.Identity{
				MyASN: nodeASN, PeerASN: routerASN, RouterID: node4, PeerAddress: router, Passive: true, TTLSecurity: true, OneFamily: true,
				HoldTime: longHold, KeepaliveTime: longHold / 3,
			}
			mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
			if said, err := dialPassive(t, router, 254); said > 0 || err == nil {
				t.Errorf("a router that is too far away is told %d octets, %v", said, err)
			}
			waitFor(t, "it is told", func() bool { return strings.Contains(s.States()["tor"].LastError, "it came with a TTL of 254") })
			if said, err := dialPassive(t, router, 255); said == 0 {
				t.Errorf("a router that is near enough is told nothing: %v", err)
			}
		})
	}
}

// dialPassive opens a connection as a router does, with this TTL from the first packet on, and
// tells how much it hears of an OPEN before the connection ends.
func dialPassive(t *testing.T, router netip.Addr, hops int) (heard int, err error) {
	t.Helper()
	dialer := net.Dialer{
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(router, 0)),
		Control: func(_, _ string, raw syscall.RawConn) error {
			var failed error
			return errors.Join(raw.Control(func(fd uintptr) {
				level, option := unix.IPPROTO_IP, unix.IP_TTL
				if router.Is6() {
					level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
				}
				failed = unix.SetsockoptInt(int(fd), level, option, hops)
			}), failed)
		},
	}
	conn, err := dialer.DialContext(t.Context(), "tcp", netip.AddrPortFrom(router, passivePort).String())
	if err != nil {
		return 0, err // which may come as soon as it is open
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return io.ReadAtLeast(conn, make([]byte, longest), headerLength)
}

// FuzzTTLOf: whatever the kernel keeps, nothing but the header of an IP packet is read for one.
func FuzzTTLOf(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x45, 8: 255, 19: 0})
	f.Add([]byte{0x60, 7: 64, 39: 0})
	f.Fuzz(func(t *testing.T, packet []byte) {
		hops, err := ttlOf(packet)
		switch {
		case err != nil && hops != 0:
			t.Errorf("%d hops and %v", hops, err)
		case err == nil && (len(packet) < 20 || hops > 255):
			t.Errorf("%d hops of %d octets", hops, len(packet))
		}
	})
}
