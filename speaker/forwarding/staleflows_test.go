package forwarding

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
)

// TestAChangeWithinASearch has a Service change after the connection table was read and before what seemed stale
// is deleted: a flow to an endpoint that came meanwhile stays, and is looked at by the next search.
func TestAChangeWithinASearch(t *testing.T) {
	f := families()[0]
	for name, nodePort := range map[string]uint16{"address": 0, "NodePort": 30053} {
		to := netip.AddrPortFrom(f.vip, 53)
		if nodePort != 0 {
			to = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), nodePort)
		}
		flow := conntrack.Flow{To: to, Answers: netip.AddrPortFrom(f.endpoint["e2"], 8080)}
		on := func(endpoints ...string) desired.Forwarding {
			want := f.want(f.vip, nodePort, endpoints...)
			want.NodePorts, want.Loopback = nil, []netip.Prefix{addr.Loopback()}
			return want
		}
		var c *Forwarder
		var verdicts []bool
		next := on("e1", "e2")
		c = assembled(t, &scripted{}, func(_ addr.Family, _ view.Protocol, lock sync.Locker, stale func(conntrack.Flow) bool) (int, error) {
			listed := stale(flow)
			if _, err := c.Apply(t.Context(), next); err != nil {
				t.Error(err)
			}
			lock.Lock()
			defer lock.Unlock()
			verdicts = append(verdicts, listed, listed && stale(flow))
			return 0, nil
		})
		apply := func(want desired.Forwarding) {
			if _, err := clean(t, c, want); err != nil {
				t.Error(err)
			}
		}
		apply(on("e1"))
		apply(next) // the endpoint is there
		next = on("e1")
		apply(next)                          // it goes
		if _, err := c.Clean(); err != nil { // nothing is left to be looked at
			t.Error(err)
		}
		if want := []bool{true, false, false, false, true, true}; !slices.Equal(verdicts, want) {
			t.Errorf("%s: stale when listed and when deleted: %v, want %v", name, verdicts, want)
		}
	}
}

// BenchmarkApplyBesideAFullTable has the endpoint of a UDP Service alternate in front of a quarter of a million flows, so
// that stale ones are looked for all the time, and measures the changes of another one, of TCP.
func BenchmarkApplyBesideAFullTable(b *testing.B) {
	node, f := netlab.NewHost(b, "node"), families()[0]
	node.Forward()
	var forwarder *Forwarder
	node.Do(func() {
		fillTable(b, 250000)
		var err error
		if forwarder, err = New(Config{Mode: NFTables, Log: slog.New(slog.DiscardHandler)}); err != nil {
			b.Fatal(err)
		}
	})
	done := make(chan struct{})
	var searching atomic.Int64
	var cleaner sync.WaitGroup
	cleaner.Go(func() {
		node.Do(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				began := time.Now()
				if _, err := forwarder.Clean(); err != nil {
					b.Error(err)
				}
				searching.Add(int64(time.Since(began)))
			}
		})
	})
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		want := f.want(f.vip, 0, []string{"e1", "e2"}[i%2])
		endpoint := []netip.AddrPort{netip.AddrPortFrom(f.endpoint["e1"], uint16(8000+i%2))}
		want.Ports[portKey("other")] = desired.Port{VIPs: []netip.Addr{f.other}, Port: 80, Cluster: endpoint, Serving: endpoint}
		began := time.Now()
		node.Do(func() {
			if missing, err := forwarder.Apply(b.Context(), want); err != nil || len(missing) > 0 {
				b.Error(missing, err)
			}
		})
		took = append(took, time.Since(began))
		time.Sleep(20 * time.Millisecond)
	}
	close(done)
	cleaner.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms")
	b.ReportMetric(float64(searching.Load())/1e6/float64(len(took)), "search-ms/op")
}

// fillTable puts n UDP flows into the connection table, to ports of their own of one address.
func fillTable(b *testing.B, n int) {
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	client, server := netip.MustParseAddr("192.0.2.1").AsSlice(), netip.MustParseAddr("203.0.113.1").AsSlice()
	for i := range n {
		from, to := uint16(1+i>>16), uint16(i)
		flow := &netlink.ConntrackFlow{
			FamilyType: unix.AF_INET, TimeOut: 3600,
			Forward: netlink.IPTuple{Protocol: unix.IPPROTO_UDP, SrcIP: client, SrcPort: from, DstIP: server, DstPort: to},
			Reverse: netlink.IPTuple{Protocol: unix.IPPROTO_UDP, SrcIP: server, SrcPort: to, DstIP: client, DstPort: from},
		}
		if err := h.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, flow); err != nil {
			b.Fatal(err)
		}
	}
}

// TestConnectionsAreLookedForInTurn has searches take longer than their share of the time: what one has no time for is due
// soon, and comes first then. Each family is looked at twice.
func TestConnectionsAreLookedForInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looked []addr.Family
		c := assembled(t, &scripted{}, func(family addr.Family, _ view.Protocol, _ sync.Locker, _ func(conntrack.Flow) bool) (int, error) {
			looked = append(looked, family)
			time.Sleep(4 * time.Second)
			return 0, nil
		})
		want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
		for _, f := range families() {
			key := portKey("web")
			key.Family = f.Family
			want.Ports[key] = desired.Port{ClusterIP: f.vip, Port: 80, Cluster: []netip.AddrPort{netip.AddrPortFrom(f.endpoint["e1"], 80)}}
		}
		if _, err := c.Apply(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		for len(looked) < 10 {
			again, err := c.Clean()
			if err != nil || again > 16*time.Second {
				t.Fatalf("after a search of %v: what is put off is due after %v, error %v", looked, again, err)
			}
			if again == 0 {
				break
			}
			time.Sleep(again)
		}
		if want := []addr.Family{addr.IPv4, addr.IPv6, addr.IPv4, addr.IPv6}; !slices.Equal(looked, want) {
			t.Errorf("families looked at: %v, want %v", looked, want)
		}
	})
}
