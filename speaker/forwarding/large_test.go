package forwarding

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/iptables"
	"fairlead.dev/fairlead/speaker/outcome"
)

// BenchmarkALargeService programs a Service of the greatest size that nodes forward beside a hundred others, changes it and removes it.
// All the while, one of the others changes before each pass: "other" is what the processors work for the longest pass, in this process, in the
// programs that it runs and in the kernel, which says on a busy machine what it takes on an idle one.
func BenchmarkALargeService(b *testing.B) {
	for _, tool := range []string{"nftables", "iptables-nft", "iptables-legacy"} {
		for _, shape := range []struct{ ports, addresses, endpoints, sources int }{{1000, 10, 5, 10}, {5000, 2, 5, 2}, {39, 256, 5, 256}, {1, 2, 5000, 0}, {1, 2, 1, 10000}} {
			b.Run(fmt.Sprint(tool, " ", shape), func(b *testing.B) {
				node := netlab.NewHost(b, "node")
				node.Forward()
				for b.Loop() {
					node.Do(func() { beside(b, tool).run(shape.ports, shape.addresses, shape.endpoints, shape.sources) })
				}
			})
		}
	}
}

// large is a Service of the greatest size, and a hundred others.
type large struct {
	*testing.B
	*Forwarder
	want   desired.Forwarding
	passes int
}

func beside(b *testing.B, tool string) *large {
	mode := IPTables
	if tool == "nftables" {
		mode = NFTables
	}
	f, err := New(Config{Mode: mode, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	if variant, is := strings.CutPrefix(tool, "iptables-"); is {
		f.backend = iptables.New(iptables.Config{Log: slog.New(slog.DiscardHandler), Variant: iptables.Variant(variant)})
		f.Gauge = f.backend
	}
	l := &large{b, f, desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}, Delta: desired.Delta[desired.PortKey]{Revision: 1}}, 0}
	for i := range 100 {
		l.other(i, 8080)
	}
	return l
}

// other changes one of the others.
func (l *large) other(i, endpoint int) desired.PortKey {
	key := portKey(fmt.Sprint(i % 100))
	l.want.Ports[key] = desired.Port{
		ClusterIP: netip.AddrFrom4([4]byte{10, 97, 0, byte(i % 100)}), Port: 80,
		Cluster: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("10.244.0.1"), uint16(endpoint))},
	}
	return key
}

// follow has the kernel follow what changed, while one of the others changes before each pass. It reports
// how long all took, and returns the longest pass.
func (l *large) follow(what string, changed map[desired.PortKey]struct{}) (most time.Duration) {
	var all time.Duration
	passes := 0
	for more := true; more; passes++ {
		l.passes++
		changed[l.other(l.passes, 9000+l.passes)] = struct{}{}
		l.want.Advance(changed)
		changed = map[desired.PortKey]struct{}{}
		began := worked()
		missing, err := l.Apply(l.Context(), l.want)
		took := worked() - began
		all, most = all+took, max(most, took)
		if more = len(outcome.PutOff(err)) > 0; outcome.Failing(err) != nil || !more && len(missing) > 0 {
			l.Error(len(missing), err)
		}
	}
	l.ReportMetric(float64(all.Microseconds())/1000, what+"-ms")
	l.ReportMetric(float64(most.Microseconds())/1000, what+"-other-ms")
	if passes > 1 {
		l.ReportMetric(float64(passes), what+"-passes")
	}
	return most
}

func (l *large) run(ports, addresses, endpoints, sources int) {
	none := func() map[desired.PortKey]struct{} { return map[desired.PortKey]struct{}{} }
	l.follow("first", none())
	debug.FreeOSMemory()
	before := resident(l.B, "VmRSS")
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600); err != nil {
		l.Fatal(err)
	}
	l.follow("new", l.giant(ports, addresses, endpoints, sources, "10.0.0.1"))
	l.ReportMetric(float64(resident(l.B, "VmHWM")-before)/1024, "peak-MiB")
	debug.FreeOSMemory()
	l.ReportMetric(float64(resident(l.B, "VmRSS")-before)/1024, "grown-MiB")
	var most time.Duration
	for range 20 {
		most = max(most, l.follow("beside", none()))
	}
	l.ReportMetric(float64(most.Microseconds())/1000, "beside-other-ms")
	l.follow("changed", l.giant(ports, addresses, endpoints, sources, "10.0.0.2"))
	changed := none()
	for key := range l.want.Ports {
		if key.Service.Name == "large" {
			delete(l.want.Ports, key)
			changed[key] = struct{}{}
		}
	}
	l.follow("gone", changed)
	if err := l.Cleanup(l.Context()); err != nil {
		l.Error(err)
	}
}

// giant makes the large Service one with endpoints from an address on. It returns its ports.
func (l *large) giant(ports, addresses, endpoints, sources int, first string) map[desired.PortKey]struct{} {
	in := func(first string, n int) (all []netip.Addr) {
		for a := netip.MustParseAddr(first); len(all) < n; a = a.Next() {
			all = append(all, a)
		}
		return all
	}
	external, allowed, pods := in("198.18.0.0", addresses-2), in("100.64.0.0", sources), in(first, endpoints)
	changed := map[desired.PortKey]struct{}{}
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
		l.want.Ports[key], changed[key] = p, struct{}{}
	}
	return changed
}

// worked is for how long processors have worked for this process and its children.
func worked() (all time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err == nil {
			all += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return all
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
