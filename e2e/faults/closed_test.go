package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"fairlead.dev/fairlead/e2e/lab"
)

// routeBack makes the router the default gateway of every node.
func routeBack(t *testing.T, k *kit, _ *rand.Rand) {
	via := func(ctx context.Context, n *lab.Node, v4, v6 string) error {
		_, err := n.Exec(ctx, "sh", "-c", fmt.Sprintf("ip route replace default via %s && ip -6 route replace default via %s", v4, v6))
		return err
	}
	for _, n := range k.Nodes() {
		atEnd(t, func(ctx context.Context) error { return via(ctx, n, "172.30.0.1", "fd00:30::1") })
		if err := via(within(t, soon), n, k.Router.IPv4.String(), k.Router.IPv6.String()); err != nil {
			t.Fatal(err)
		}
	}
}

// closed checks that what an address does not have is refused at once, that no packet crosses the router's link more
// often than to and from it, and that pings are answered.
func closed(ctx context.Context, k *kit) error {
	const port, most = 83, 500 * time.Millisecond
	for _, vips := range [][]netip.Addr{k.layer2, k.routed} {
		for _, vip := range vips {
			seen, err := k.Router.Capture(ctx, fmt.Sprintf("dst host %s and dst port %d", vip, port))
			if err != nil {
				return err
			}
			at := netip.AddrPortFrom(vip, port)
			began := time.Now()
			err = refused(ctx, k.Client, at)
			if took := time.Since(began); err != nil || took > most {
				return fmt.Errorf("port %d of %s is not refused, after %v: %w", port, vip, took, err)
			}
			if err := send(ctx, k.Client, at); err != nil {
				return err
			}
			if err := ping(k.Client, vip); err != nil {
				return fmt.Errorf("no ping of %s: %w", vip, err)
			}
			if lines := seen.Stop(); len(lines) > 4 { // each of two packets came and went
				return fmt.Errorf("a packet for port %d of %s loops: %d were seen", port, vip, len(lines))
			}
		}
	}
	return nil
}

// refused checks that a host refuses to be asked on a port of TCP.
func refused(ctx context.Context, from *lab.Machine, at netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := from.Dial(ctx, "tcp", at.String())
	if err == nil {
		err = conn.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	return fmt.Errorf("it is not refused: %w", err)
}

// send sends a datagram. Whether an error comes back is up to the kernel, which limits their rate.
func send(ctx context.Context, from *lab.Machine, at netip.AddrPort) error {
	conn, err := from.Dial(ctx, "udp", at.String())
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte("x"))
	return errors.Join(err, conn.Close())
}

// ping checks that a ping is answered within a second.
func ping(from *lab.Machine, vip netip.Addr) error {
	network, request, reply := "ip4:icmp", icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply)
	if vip.Is6() {
		network, request, reply = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	var conn *net.IPConn
	err := from.Inside(func() (err error) {
		conn, err = net.DialIP(network, nil, &net.IPAddr{IP: vip.AsSlice()})
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	// The kernel fills in the checksum of ICMPv6.
	question, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: 1, Seq: 1}}).Marshal(nil)
	if err == nil {
		_, err = conn.Write(question)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Now().Add(time.Second))
	}
	for answer := make([]byte, 128); err == nil; {
		var n int
		if n, _, err = conn.ReadFromIP(answer); err != nil { // without the header of IP
			break
		}
		if m, failed := icmp.ParseMessage(reply.Protocol(), answer[:n]); failed == nil && m.Type == reply {
			return nil
		}
	}
	return err
}
