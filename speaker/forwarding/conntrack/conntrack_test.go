package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// TestDelete has flows of all kinds in a kernel's table; only the stale ones of the
// protocol go, and of connections only those that nobody has answered.
func TestDelete(t *testing.T) {
	a := netip.MustParseAddr
	for _, f := range []struct {
		addr.Family
		client, vip, other, e1, gone netip.Addr
	}{
		{addr.IPv4, a("192.0.2.9"), a("198.51.100.1"), a("198.51.100.2"), a("10.0.1.2"), a("10.0.1.3")},
		{addr.IPv6, a("2001:db8::9"), a("2001:db8::1"), a("2001:db8::2"), a("fd00::2"), a("fd00::3")},
	} {
		vip, e1, gone := netip.AddrPortFrom(f.vip, 53), netip.AddrPortFrom(f.e1, 8053), netip.AddrPortFrom(f.gone, 8053)
		for protocol, flows := range map[view.Protocol][]flow{
			view.UDP: {
				{"to an endpoint that serves", view.UDP, vip, e1, 0, false},
				{"to an endpoint that is gone", view.UDP, vip, gone, 0, true},
				{"to another port of the endpoint", view.UDP, vip, netip.AddrPortFrom(f.e1, 8054), 0, true},
				{"from before the Service", view.UDP, vip, vip, 0, true},
				{"to another port", view.UDP, netip.AddrPortFrom(f.vip, 54), gone, 0, false},
				{"to another address", view.UDP, netip.AddrPortFrom(f.other, 53), gone, 0, false},
				{"TCP", view.TCP, vip, gone, synSent, false},
			},
			view.TCP: {
				{"that nobody has answered", view.TCP, vip, vip, synSent, true},
				{"that nobody has answered, to an endpoint", view.TCP, vip, e1, synSent, false},
				{"that nobody has answered, to another address", view.TCP, netip.AddrPortFrom(f.other, 53), gone, synSent, false},
				{"answered", view.TCP, vip, vip, 2, false},
				{"established", view.TCP, vip, vip, 3, false},
				{"established, to an endpoint that is gone", view.TCP, vip, gone, 3, false},
				{"that ends", view.TCP, vip, gone, 4, false},
				{"UDP", view.UDP, vip, vip, 0, false},
			},
		} {
			t.Run(fmt.Sprint(f.Family, " ", protocol), func(t *testing.T) {
				testDelete(t, f.Family, protocol, f.client, flows, func(flow Flow) bool { return flow.To == vip && flow.Answers != e1 })
			})
		}
	}
}

// synSent is the state of a TCP connection that its client has asked for.
const synSent = nl.TCP_CONNTRACK_SYN_SENT

// flow is one that a test puts into the table.
type flow struct {
	name       string
	protocol   view.Protocol
	to, answer netip.AddrPort
	state      uint8 // of a connection
	stale      bool
}

func testDelete(t *testing.T, f addr.Family, protocol view.Protocol, client netip.Addr, flows []flow, isStale func(Flow) bool) {
	inet := netlink.InetFamily(unix.AF_INET)
	if f == addr.IPv6 {
		inet = unix.AF_INET6
	}
	var want, left []string
	var deleted, stale int
	var err error
	netlab.NewHost(t, "node").Do(func() {
		for i, flow := range flows {
			source := netip.AddrPortFrom(client, uint16(1000+i))
			if flow.stale {
				stale++
			} else {
				want = append(want, flow.name)
			}
			entry := &netlink.ConntrackFlow{
				FamilyType: uint8(inet), TimeOut: 100,
				Forward: tuple(flow.protocol.Number(), source, flow.to),
				Reverse: tuple(flow.protocol.Number(), flow.answer, source),
			}
			if flow.protocol == view.TCP {
				entry.ProtoInfo = &netlink.ProtoInfoTCP{State: flow.state}
			}
			if err := netlink.ConntrackCreate(netlink.ConntrackTable, inet, entry); err != nil {
				t.Errorf("create flow %q: %v", flow.name, err)
			}
		}
		deleted, err = Delete(f, protocol, &sync.Mutex{}, isStale)
		rest, listErr := netlink.ConntrackTableList(netlink.ConntrackTable, inet)
		if listErr != nil {
			t.Errorf("list: %v", listErr)
		}
		for _, entry := range rest {
			left = append(left, flows[entry.Forward.SrcPort-1000].name)
		}
	})
	slices.Sort(left)
	slices.Sort(want)
	if err != nil || deleted != stale || !slices.Equal(left, want) {
		t.Errorf("deleted %d, error %v; flows left %q, want %q", deleted, err, left, want)
	}
}

func tuple(protocol uint8, from, to netip.AddrPort) netlink.IPTuple {
	return netlink.IPTuple{
		Protocol: protocol, SrcIP: from.Addr().AsSlice(), SrcPort: from.Port(),
		DstIP: to.Addr().AsSlice(), DstPort: to.Port(),
	}
}

// TestDeleteOf deletes the stale ones of some flows, in whatever state, and looks at no others.
func TestDeleteOf(t *testing.T) {
	a := netip.MustParseAddr
	for _, f := range []struct {
		addr.Family
		client, vip, e1, gone netip.Addr
	}{
		{addr.IPv4, a("192.0.2.9"), a("198.51.100.1"), a("10.0.1.2"), a("10.0.1.3")},
		{addr.IPv6, a("2001:db8::9"), a("2001:db8::1"), a("fd00::2"), a("fd00::3")},
	} {
		inet := netlink.InetFamily(unix.AF_INET)
		if f.Family == addr.IPv6 {
			inet = unix.AF_INET6
		}
		vip := netip.AddrPortFrom(f.vip, 80)
		netlab.NewHost(t, "node").Do(func() {
			var tuples []Tuple
			for i, endpoint := range []netip.Addr{f.gone, f.e1, f.gone} {
				from := netip.AddrPortFrom(f.client, uint16(1000+i))
				entry := &netlink.ConntrackFlow{
					FamilyType: uint8(inet), TimeOut: 100, ProtoInfo: &netlink.ProtoInfoTCP{State: nl.TCP_CONNTRACK_ESTABLISHED},
					Forward: tuple(unix.IPPROTO_TCP, from, vip), Reverse: tuple(unix.IPPROTO_TCP, netip.AddrPortFrom(endpoint, 8080), from),
				}
				if err := netlink.ConntrackCreate(netlink.ConntrackTable, inet, entry); err != nil {
					t.Fatal(err)
				}
				if i < 2 {
					tuples = append(tuples, Tuple{view.TCP, from, vip})
				}
			}
			tuples = append(tuples, Tuple{view.SCTP, tuples[0].From, vip}, Tuple{view.TCP, netip.AddrPortFrom(f.client, 999), vip})
			deleted, err := DeleteOf(f.Family, tuples, func(_ view.Protocol, flow Flow) bool {
				return flow.Answers.Addr() == f.gone
			})
			left, listErr := netlink.ConntrackTableList(netlink.ConntrackTable, inet)
			if err != nil || listErr != nil || deleted != 1 || len(left) != 2 {
				t.Errorf("%s: %d deleted, %d left, errors %v, %v", f.Family, deleted, len(left), err, listErr)
			}
			for _, flow := range left {
				if flow.Forward.SrcPort == 1000 {
					t.Errorf("%s: the one that is stale is left", f.Family)
				}
			}
		})
	}
}

// TestDeleteWhileFlowsVanish deletes flows that are gone already.
func TestDeleteWhileFlowsVanish(t *testing.T) {
	var n int
	var err error
	netlab.NewHost(t, "node").Do(func() {
		fill(t, 300, unix.IPPROTO_UDP)
		n, err = Delete(addr.IPv4, view.UDP, &sync.Mutex{}, func(flow Flow) bool {
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
			for _, protocol := range []view.Protocol{view.TCP, view.UDP, view.SCTP} {
				parse(family, protocol, entry)
			}
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
			const established, assured, confirmed = 3, 1 << 2, 1 << 3
			body = body.Nested(nl.CTA_PROTOINFO, nfnetlink.Attributes(nil).Nested(1, nfnetlink.Attributes(nil).Add(1, established))).
				Uint32(nl.CTA_STATUS, seenReply|assured|confirmed)
		}
		bodies = append(bodies, body)
	}
	done, err := nfnetlink.Batch(unix.NFNL_SUBSYS_CTNETLINK, nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_CREATE, addr.IPv4, bodies, func(unix.Errno) bool { return false })
	if err != nil || done != n {
		t.Errorf("put %d of %d flows into the table: %v", done, n, err)
	}
}

// BenchmarkDelete deletes ten thousand of a hundred thousand flows, half of which are of
// UDP; and finds none among the others, which are connections that are established.
func BenchmarkDelete(b *testing.B) {
	for protocol, stale := range map[view.Protocol]int{view.UDP: 10000, view.TCP: 0} {
		b.Run(string(protocol), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				netlab.NewHost(b, "node").Do(func() {
					fill(b, 50000, unix.IPPROTO_UDP)
					fill(b, 50000, unix.IPPROTO_TCP)
					b.StartTimer()
					n, err := Delete(addr.IPv4, protocol, &sync.Mutex{}, func(flow Flow) bool { return flow.To.Port() < 55 })
					b.StopTimer()
					if err != nil || n != stale {
						b.Errorf("deleted %d, error %v", n, err)
					}
				})
				b.StartTimer()
			}
		})
	}
}
