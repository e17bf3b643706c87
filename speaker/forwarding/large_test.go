package forwarding

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// BenchmarkALargeService programs a Service of the greatest size that nodes forward beside a hundred others, and
// changes one of these.
func BenchmarkALargeService(b *testing.B) {
	for _, mode := range []Mode{NFTables, IPTables} {
		for _, shape := range []struct{ ports, addresses, endpoints, sources int }{{1000, 20, 5, 100}, {10000, 2, 5, 10}, {10, 2000, 5, 10}, {1, 2, 50000, 0}} {
			b.Run(fmt.Sprint(mode, " ", shape), func(b *testing.B) {
				node := netlab.NewHost(b, "node")
				for b.Loop() {
					node.Do(func() { large(b, mode, shape.ports, shape.addresses, shape.endpoints, shape.sources) })
				}
			})
		}
	}
}

func large(b *testing.B, mode Mode, ports, addresses, endpoints, sources int) {
	in := func(first string, n int) (all []netip.Addr) {
		for a := netip.MustParseAddr(first); len(all) < n; a = a.Next() {
			all = append(all, a)
		}
		return all
	}
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}, Delta: desired.Delta[desired.PortKey]{Revision: 1}}
	other := func(i, endpoint int) (desired.PortKey, desired.Port) {
		return portKey(fmt.Sprint(i)), desired.Port{
			ClusterIP: netip.AddrFrom4([4]byte{10, 97, 0, byte(i)}), Port: 80, Cluster: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("10.244.0.1"), uint16(endpoint))},
		}
	}
	for i := range 100 {
		key, p := other(i, 8080)
		want.Ports[key] = p
	}
	backend, err := New(Config{Mode: mode, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	apply := func() time.Duration {
		began := time.Now()
		if missing, err := backend.Apply(b.Context(), want); err != nil || len(missing) > 0 {
			b.Error(len(missing), err)
		}
		return time.Since(began)
	}
	change := func(endpoint int) (most time.Duration) {
		for i := range 20 {
			key, p := other(i, endpoint)
			want.Ports[key] = p
			want.Advance(map[desired.PortKey]struct{}{key: {}})
			most = max(most, apply())
		}
		return most
	}
	apply()
	b.ReportMetric(float64(change(9000).Microseconds())/1000, "other-before-ms")
	debug.FreeOSMemory()
	before := resident(b, "VmRSS")
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600); err != nil {
		b.Fatal(err)
	}
	external, allowed := in("198.18.0.0", addresses-2), in("100.64.0.0", sources)
	changed := map[desired.PortKey]struct{}{}
	pods := in("10.0.0.1", endpoints)
	for i := range ports {
		p := desired.Port{
			ClusterIP: netip.MustParseAddr("10.96.0.1"), VIPs: in("203.0.113.1", 1), ExternalIPs: external, Port: uint16(i + 1), Restricted: sources > 0,
		}
		for _, a := range pods {
			p.Cluster = append(p.Cluster, netip.AddrPortFrom(a, uint16(i+1)))
		}
		for _, a := range allowed {
			p.SourceRanges = append(p.SourceRanges, addr.HostPrefix(a))
		}
		p.Serving, p.Listed = p.Cluster, p.Cluster
		key := desired.PortKey{Service: view.Ref{Namespace: "a", Name: "large"}, Name: fmt.Sprint(i), Protocol: view.TCP, Family: addr.IPv4}
		want.Ports[key], changed[key] = p, struct{}{}
	}
	want.Advance(changed)
	b.ReportMetric(float64(apply().Microseconds())/1000, "fill-ms")
	b.ReportMetric(float64(resident(b, "VmHWM")-before)/1024, "peak-MiB")
	debug.FreeOSMemory()
	b.ReportMetric(float64(resident(b, "VmRSS")-before)/1024, "grown-MiB")
	b.ReportMetric(float64(change(9001).Microseconds())/1000, "other-ms")
	runtime.KeepAlive(want)
	if err := backend.Cleanup(b.Context()); err != nil {
		b.Error(err)
	}
}

// resident is what this process has in memory, in KiB.
func resident(b *testing.B, what string) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	found := regexp.MustCompile(what + `:\s+(\d+)`).FindSubmatch(status)
	if len(slices.Concat(found...)) == 0 {
		b.Fatalf("no %s", what)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		b.Fatal(err)
	}
	return n
}
