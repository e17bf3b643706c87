package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/forwarding/nfnetlink"
)

// TestDeleteUDP has flows of all kinds in a kernel's table; only the stale ones go.
func TestDeleteUDP(t *testing.T) {
	a := netip.MustParseAddr
	for _, f := range []struct {
		addr.Family
		client, vip, other, e1, gone netip.Addr
	}{
		{addr.IPv4, a("192.0.2.9"), a("198.51.100.1"), a("198.51.100.2"), a("10.0.1.2"), a("10.0.1.3")},
		{addr.IPv6, a("2001:db8::9"), a("2001:db8::1"), a("2001:db8::2"), a("fd00::2"), a("fd00::3")},
	} {
		t.Run(f.String(), func(t *testing.T) {
			flows := []struct {
				name       string
				protocol   uint8
				to, answer netip.AddrPort
				stale      bool
			}{
				{"to an endpoint that serves", unix.IPPROTO_UDP, netip.AddrPortFrom(f.vip, 53), netip.AddrPortFrom(f.e1, 8053), false},
				{"to an endpoint that is gone", unix.IPPROTO_UDP, netip.AddrPortFrom(f.vip, 53), netip.AddrPortFrom(f.gone, 8053), true},
				{"to another port of the endpoint", unix.IPPROTO_UDP, netip.AddrPortFrom(f.vip, 53), netip.AddrPortFrom(f.e1, 8054), true},
				{"from before the Service", unix.IPPROTO_UDP, netip.AddrPortFrom(f.vip, 53), netip.AddrPortFrom(f.vip, 53), true},
				{"to another port", unix.IPPROTO_UDP, netip.AddrPortFrom(f.vip, 54), netip.AddrPortFrom(f.gone, 8053), false},
				{"to another address", unix.IPPROTO_UDP, netip.AddrPortFrom(f.other, 53), netip.AddrPortFrom(f.gone, 8053), false},
				{"TCP", unix.IPPROTO_TCP, netip.AddrPortFrom(f.vip, 53), netip.AddrPortFrom(f.gone, 8053), false},
			}
			inet := netlink.InetFamily(unix.AF_INET)
			if f.Family == addr.IPv6 {
				inet = unix.AF_INET6
			}
			var want, left []string
			var deleted, stale int
			var err error
			netlab.NewHost(t, "node").Do(func() {
				for i, flow := range flows {
					source := uint16(1000 + i)
					if flow.stale {
						stale++
					} else {
						want = append(want, fmt.Sprint(source))
					}
					entry := &netlink.ConntrackFlow{
						FamilyType: uint8(inet), TimeOut: 100,
						Forward: tuple(flow.protocol, netip.AddrPortFrom(f.client, source), flow.to),
						Reverse: tuple(flow.protocol, flow.answer, netip.AddrPortFrom(f.client, source)),
					}
					if flow.protocol == unix.IPPROTO_TCP {
						entry.ProtoInfo = &netlink.ProtoInfoTCP{State: 3}
					}
					if err := netlink.ConntrackCreate(netlink.ConntrackTable, inet, entry); err != nil {
						t.Errorf("create flow %q: %v", flow.name, err)
					}
				}
				deleted, err = DeleteUDP(f.Family, func(flow Flow) bool {
					return flow.To == netip.AddrPortFrom(f.vip, 53) && flow.Answers != netip.AddrPortFrom(f.e1, 8053)
				})
				rest, listErr := netlink.ConntrackTableList(netlink.ConntrackTable, inet)
				if listErr != nil {
					t.Errorf("list: %v", listErr)
				}
				for _, flow := range rest {
					left = append(left, fmt.Sprint(flow.Forward.SrcPort))
				}
			})
			slices.Sort(left)
			if err != nil || deleted != stale || !slices.Equal(left, want) {
				t.Errorf("deleted %d, error %v; flows left %v, want %v", deleted, err, left, want)
			}
		})
	}
}

func tuple(protocol uint8, from, to netip.AddrPort) netlink.IPTuple {
	return netlink.IPTuple{
		Protocol: protocol, SrcIP: from.Addr().AsSlice(), SrcPort: from.Port(),
		DstIP: to.Addr().AsSlice(), DstPort: to.Port(),
	}
}

// TestDeleteWhileFlowsVanish deletes flows that are gone already.
func TestDeleteWhileFlowsVanish(t *testing.T) {
	var n int
	var err error
	netlab.NewHost(t, "node").Do(func() {
		fill(t, 300, unix.IPPROTO_UDP)
		n, err = DeleteUDP(addr.IPv4, func(flow Flow) bool {
			if flow.To.Port()%3 == 0 {
				if flushErr := netlink.ConntrackTableFlush(netlink.ConntrackTable); flushErr != nil {
					t.Error(flushErr)
				}
			}
			return true
		})
	})
	if err != nil || n > 300 {
		t.Errorf("deleted %d, error %v", n, err)
	}
}

// FuzzParse holds that no entry, however odd, ends the process.
func FuzzParse(f *testing.F) {
	f.Add([]byte{8, 0, 1, 128, 4, 0, 1, 128})
	f.Fuzz(func(_ *testing.T, entry []byte) {
		for _, family := range addr.Families() {
			parse(family, entry)
		}
		identity(entry)
	})
}

// fill puts n flows into the table, from ports of their own to port 53 of ever other
// addresses.
func fill(t testing.TB, n int, protocol uint8) {
	var bodies []nfnetlink.Attributes
	tuple := func(from, to netip.AddrPort) nfnetlink.Attributes {
		return nfnetlink.Attributes(nil).
			Nested(nl.CTA_TUPLE_IP, nfnetlink.Attributes(nil).
				Add(nl.CTA_IP_V4_SRC, from.Addr().AsSlice()...).Add(nl.CTA_IP_V4_DST, to.Addr().AsSlice()...)).
			Nested(nl.CTA_TUPLE_PROTO, nfnetlink.Attributes(nil).
				Add(nl.CTA_PROTO_NUM, protocol).Uint16(nl.CTA_PROTO_SRC_PORT, from.Port()).Uint16(nl.CTA_PROTO_DST_PORT, to.Port()))
	}
	for i := range n {
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i >> 16)}), uint16(i))
		vip := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(i % 10)}), 53+uint16(i%10))
		endpoint := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 0, byte(i % 10)}), 8053)
		body := nfnetlink.Attributes(nil).Nested(nl.CTA_TUPLE_ORIG, tuple(client, vip)).
			Nested(nl.CTA_TUPLE_REPLY, tuple(endpoint, client)).Uint32(nl.CTA_TIMEOUT, 3600)
		if protocol == unix.IPPROTO_TCP {
			body = body.Nested(nl.CTA_PROTOINFO, nfnetlink.Attributes(nil).Nested(1, nfnetlink.Attributes(nil).Add(1, 3)))
		}
		bodies = append(bodies, body)
	}
	done, err := nfnetlink.Batch(unix.NFNL_SUBSYS_CTNETLINK, nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_CREATE, addr.IPv4, bodies, func(unix.Errno) bool { return false })
	if err != nil || done != n {
		t.Errorf("put %d of %d flows into the table: %v", done, n, err)
	}
}

// BenchmarkDeleteUDP deletes ten thousand of a hundred thousand flows, half of which
// are of UDP.
func BenchmarkDeleteUDP(b *testing.B) {
	for b.Loop() {
		netlab.NewHost(b, "node").Do(func() {
			b.StopTimer()
			fill(b, 50000, unix.IPPROTO_UDP)
			fill(b, 50000, unix.IPPROTO_TCP)
			b.StartTimer()
			n, err := DeleteUDP(addr.IPv4, func(flow Flow) bool { return flow.To.Port() < 55 })
			if err != nil || n != 10000 {
				b.Errorf("deleted %d, error %v", n, err)
			}
		})
	}
}
