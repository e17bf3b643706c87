package nftables

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// BenchmarkProgramming measures, with this many Services of five endpoints each, the
// first fill, changes of one Service, an idle Apply, a reading because others wrote,
// and the first Apply of the next process.
func BenchmarkProgramming(b *testing.B) {
	for _, n := range []int{1000, 10000, 30000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				node := netlab.NewHost(b, "node")
				node.Do(func() { program(b, n) })
			}
		})
	}
}

func bulkKey(i int) desired.PortKey {
	return desired.PortKey{Service: view.Ref{Namespace: "shop", Name: fmt.Sprint("s", i)}, Protocol: view.TCP, Family: addr.IPv4}
}

func bulkPort(i, endpoints int) desired.Port {
	hi, lo := byte(i>>8), byte(i)
	p := desired.Port{ClusterIP: netip.AddrFrom4([4]byte{10, 96, hi, lo}), Port: 80}
	for e := range endpoints {
		p.Cluster = append(p.Cluster, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 128 + byte(e), hi, lo}), blackbox.ServePort))
	}
	p.Serving = p.Cluster
	return p
}

// processor is how long this process has worked so far, in it and in the kernel.
func processor() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func program(b *testing.B, n int) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	backend := New(Config{Log: blackbox.Quiet()})
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}, Delta: desired.Delta[desired.PortKey]{Revision: 1}}
	for i := range n {
		want.Ports[bulkKey(i)] = bulkPort(i, 5)
	}
	// apply reports the median of some times, and what the processor worked for one.
	apply := func(name string, times int, change func(i int)) {
		var took []time.Duration
		var worked time.Duration
		for i := range times {
			want.Since, want.Revision, want.Changed = want.Revision, want.Revision+1, map[desired.PortKey]struct{}{}
			change(i)
			start, busy := time.Now(), processor()
			if _, err := backend.Apply(b.Context(), want); err != nil {
				b.Error(err)
			}
			took, worked = append(took, time.Since(start)), worked+processor()-busy
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, name+"-ms")
		b.ReportMetric(float64((worked/time.Duration(times)).Microseconds())/1000, name+"-cpu-ms")
	}
	set := func(i int, p desired.Port) {
		want.Ports[bulkKey(i)] = p
		want.Changed[bulkKey(i)] = struct{}{}
	}
	apply("fill", 1, func(int) {})
	apply("endpoint", 400, func(i int) {
		p := bulkPort(n/2, 5)
		p.Cluster[2] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, 0, byte(i)}), blackbox.ServePort)
		set(n/2, p)
	})
	apply("size", 50, func(i int) { set(n/2, bulkPort(n/2, 4+i%2)) })
	apply("service", 50, func(i int) {
		set(n, bulkPort(n, 5))
		if i%2 == 1 {
			delete(want.Ports, bulkKey(n))
		}
	})
	apply("idle", 50, func(int) {})
	apply("verify", 1, func(int) { backend.families[0].epoch-- })
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "heap-MB")
	backend = New(Config{Log: blackbox.Quiet()})
	apply("restart", 1, func(int) {})
	if err := backend.Cleanup(b.Context()); err != nil {
		b.Error(err)
	}
}
