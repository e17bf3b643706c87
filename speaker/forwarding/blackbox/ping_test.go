package blackbox_test

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// Numbers of protocols, as golang.org/x/net/icmp wants them.
const (
	icmp4 = 1
	icmp6 = 58
)

// ping sends ICMP echo requests from one address of the host to another, and waits for a
// reply of the latter: nil, ErrRefused if a host says that the destination is unreachable,
// ErrSilence after the timeout.
func ping(h *netlab.Host, from, to netip.Addr, timeout time.Duration) error {
	network, protocol, request := "ip4:icmp", icmp4, icmp.Type(ipv4.ICMPTypeEcho)
	if to.Is6() {
		network, protocol, request = "ip6:ipv6-icmp", icmp6, ipv6.ICMPTypeEchoRequest
	}
	var c *icmp.PacketConn
	var err error
	h.Do(func() { c, err = icmp.ListenPacket(network, from.String()) })
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	id := rand.IntN(1 << 16)                                                           // of a flow of its own
	data, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: id}}).Marshal(nil) // the kernel sums for IPv6
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(data, &net.IPAddr{IP: to.AsSlice()}); err != nil && !errors.Is(err, syscall.EPERM) { // its own host drops it
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	for {
		n, by, err := c.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return netlab.ErrSilence
		}
		if err != nil {
			return err
		}
		m, err := icmp.ParseMessage(protocol, buffer[:n])
		if err != nil {
			continue // not ours
		}
		switch m.Type {
		case ipv4.ICMPTypeEchoReply, ipv6.ICMPTypeEchoReply:
			if ip, ok := by.(*net.IPAddr); ok && ip.IP.Equal(to.AsSlice()) {
				return nil
			}
		case ipv4.ICMPTypeDestinationUnreachable, ipv6.ICMPTypeDestinationUnreachable:
			if unreachable, ok := m.Body.(*icmp.DstUnreach); ok && about(unreachable.Data, to) {
				return netlab.ErrRefused
			}
		}
	}
}

// about reports whether an ICMP error is about a packet to this address.
func about(packet []byte, to netip.Addr) bool {
	at := 16 // of the destination in the header
	if to.Is6() {
		at = 24
	}
	length := len(to.AsSlice())
	return len(packet) >= at+length && string(packet[at:at+length]) == string(to.AsSlice())
}
