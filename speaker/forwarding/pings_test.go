package forwarding

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestAPingThatGoesOnIsAnsweredWhileTheVIPIsServed goes on with one flow of pings, as a router's health check does, while
// the VIP loses its endpoints and gets them again, also while no process runs.
func TestAPingThatGoesOnIsAnsweredWhileTheVIPIsServed(t *testing.T) {
	for family, test := range map[addr.Family]struct {
		client, node, vip netip.Addr
		endpoint          netip.AddrPort
		network           string
		protocol          int
		request, reply    icmp.Type
	}{
		addr.IPv4: {
			netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.0.2.10"), netip.MustParseAddrPort("10.0.1.2:8080"),
			"ip4:icmp", 1, ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply,
		},
		addr.IPv6: {
			netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("2001:db8::10"), netip.MustParseAddrPort("[fd00:0:0:1::2]:8080"),
			"ip6:ipv6-icmp", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply,
		},
	} {
		t.Run(family.String(), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			key := desired.PortKey{Service: view.Ref{Namespace: "shop", Name: "web"}, Protocol: view.TCP, Family: family}
			wanted := func(endpoints ...netip.AddrPort) desired.Forwarding {
				return desired.Forwarding{Echo: []netip.Addr{test.node}, Ports: map[desired.PortKey]desired.Port{
					key: {VIPs: []netip.Addr{test.vip}, Port: 80, Announced: []netip.Addr{test.vip}, Cluster: endpoints, Serving: endpoints},
				}}
			}
			var c *icmp.PacketConn
			var err error
			l.client.Do(func() { c, err = icmp.ListenPacket(test.network, test.client.String()) })
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			sequence := 0
			answered := func(limit time.Duration) bool {
				t.Helper()
				sequence++
				data, err := (&icmp.Message{Type: test.request, Body: &icmp.Echo{ID: 7, Seq: sequence}}).Marshal(nil)
				if err == nil {
					_, err = c.WriteTo(data, &net.IPAddr{IP: test.vip.AsSlice()})
				}
				if err == nil {
					err = c.SetReadDeadline(time.Now().Add(limit))
				}
				if err != nil {
					t.Fatal(err)
				}
				for buffer := make([]byte, 1500); ; {
					n, _, err := c.ReadFrom(buffer)
					if err != nil {
						return false
					}
					if m, err := icmp.ParseMessage(test.protocol, buffer[:n]); err == nil && m.Type == test.reply && m.Body.(*icmp.Echo).Seq == sequence {
						return true
					}
				}
			}
			l.apply(wanted(test.endpoint))
			for range 3 {
				if !answered(answerIn) {
					t.Fatal("the VIP is served, and a ping is not answered")
				}
			}
			l.apply(wanted())
			if answered(silenceAfter) {
				t.Error("no endpoint serves any more, and a ping is answered")
			}
			l.apply(wanted(test.endpoint))
			if !answered(answerIn) {
				t.Error("the VIP is served again, and a ping is not answered")
			}
			l.backend = l.newBackend()
			l.apply(wanted())
			if answered(silenceAfter) {
				t.Error("the endpoint went while no process ran, and a ping is answered")
			}
		})
	}
}
