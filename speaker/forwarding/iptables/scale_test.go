package iptables

import (
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
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

// BenchmarkProgramming measures, with this many Services of three endpoints
// each, the first fill, one changed Service and an idle Apply.
func BenchmarkProgramming(b *testing.B) {
	for _, variant := range variants {
		for _, n := range []int{1000, 10000} {
			b.Run(fmt.Sprintf("%s/%d", variant, n), func(b *testing.B) {
				node := netlab.NewHost(b, "node")
				for b.Loop() {
					node.Do(func() { program(b, variant, n) })
				}
			})
		}
	}
}

func program(b *testing.B, variant Variant, n int) {
	backend := New(Config{Log: blackbox.Quiet(), Variant: variant})
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
	key := func(i int) desired.PortKey {
		return desired.PortKey{Service: view.Ref{Namespace: "shop", Name: fmt.Sprint("s", i)}, Protocol: view.TCP, Family: addr.IPv4}
	}
	for i := range n {
		hi, lo := byte(i>>8), byte(i)
		want.Ports[key(i)] = desired.Port{
			ClusterIP: netip.AddrFrom4([4]byte{10, 96, hi, lo}), Port: 80,
			Cluster: blackbox.At(blackbox.ServePort, netip.AddrFrom4([4]byte{10, 244, hi, lo}),
				netip.AddrFrom4([4]byte{10, 245, hi, lo}), netip.AddrFrom4([4]byte{10, 246, hi, lo})),
		}
	}
	// apply reports the least of some times: the machine does other things too.
	apply := func(name string, times int, change func()) {
		least := time.Hour
		for range times {
			change()
			start := time.Now()
			if _, err := backend.Apply(b.Context(), want); err != nil {
				b.Error(err)
			}
			least = min(least, time.Since(start))
		}
		b.ReportMetric(float64(least.Microseconds())/1000, name)
	}
	apply("fill-ms", 1, func() {})
	apply("change-ms", 5, func() {
		want.Ports = maps.Clone(want.Ports)
		changed := want.Ports[key(n/2)]
		changed.Cluster = slices.Clone(changed.Cluster)
		changed.Cluster[0] = netip.AddrPortFrom(changed.Cluster[0].Addr().Next(), blackbox.ServePort)
		want.Ports[key(n/2)] = changed
	})
	apply("idle-ms", 20, func() {})
	if err := backend.Cleanup(b.Context()); err != nil {
		b.Error(err)
	}
}

// BenchmarkRepair measures how long it takes until the rules are back, with this many
// Services of three endpoints, a VIP and a NodePort each, after others have emptied all
// of nat, one chain that all packets pass, and one of a Service.
func BenchmarkRepair(b *testing.B) {
	for _, variant := range variants {
		for _, n := range []int{1000, 10000} {
			b.Run(fmt.Sprintf("%s/%d", variant, n), func(b *testing.B) {
				node := netlab.NewHost(b, "node")
				for b.Loop() {
					node.Do(func() { repair(b, variant, n) })
				}
			})
		}
	}
}

// services is this many Services, and the chain of one of them.
func services(n int) (want desired.Forwarding, chain string) {
	want = desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
	for i := range n {
		hi, lo := byte(i>>8), byte(i)
		at := func(a, b byte) netip.Addr { return netip.AddrFrom4([4]byte{a, b, hi, lo}) }
		key := desired.PortKey{Service: view.Ref{Namespace: "shop", Name: fmt.Sprint("s", i)}, Protocol: view.TCP, Family: addr.IPv4}
		want.Ports[key] = desired.Port{
			ClusterIP: at(10, 96), VIPs: []netip.Addr{at(198, 18)}, Port: 80, NodePort: 30000 + uint16(i),
			Cluster: blackbox.At(blackbox.ServePort, at(10, 244), at(10, 245), at(10, 246)), Anywhere: true,
		}
		chain = (&portRenderer{id: digest(fmt.Sprintf("%v", key))}).chain(kindInternal)
	}
	return want, chain
}

func repair(b *testing.B, variant Variant, n int) {
	backend := New(Config{Log: blackbox.Quiet(), Variant: variant})
	want, chain := services(n)
	apply := func(name string) {
		for _, f := range backend.families {
			f.reading = newReading() // which others' changes have not used up
		}
		began := time.Now()
		if missing, err := backend.Apply(b.Context(), want); err != nil || len(missing) > 0 {
			b.Errorf("%s: %d ports are missing: %v", name, len(missing), err)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), name)
	}
	apply("fill-ms")
	for name, args := range map[string][]string{
		"all-ms": {"-F"}, "root-ms": {"-F", chainServices}, "chain-ms": {"-F", chain},
	} {
		program := "iptables-" + string(variant)
		if out, err := exec.CommandContext(b.Context(), program, append([]string{"-t", "nat"}, args...)...).CombinedOutput(); err != nil {
			b.Errorf("%s %v: %v: %s", program, args, err, out)
		}
		apply(name)
	}
	if err := backend.Cleanup(b.Context()); err != nil {
		b.Error(err)
	}
}

// BenchmarkAtRest measures what it costs, in thousandths of a CPU, to see that nobody changes anything, with this many
// Services as in BenchmarkRepair, and how long it takes until a rule and an element that others put in place of
// ours are replaced: a count shows neither.
func BenchmarkAtRest(b *testing.B) {
	for _, variant := range variants {
		for _, n := range []int{100, 1000, 10000} {
			b.Run(fmt.Sprintf("%s/%d", variant, n), func(b *testing.B) {
				node := netlab.NewHost(b, "node")
				for b.Loop() {
					node.Do(func() { rest(b, variant, n) })
				}
			})
		}
	}
}

func rest(b *testing.B, variant Variant, n int) {
	backend := New(Config{Log: blackbox.Quiet(), Variant: variant})
	want, _ := services(n)
	apply := func() {
		if missing, err := backend.Apply(b.Context(), want); err != nil || len(missing) > 0 {
			b.Errorf("%d ports are missing: %v", len(missing), err)
		}
	}
	// watch does what Watch and the agent do, until it is enough, and returns how long that took.
	watch := func(enough func(since time.Duration) bool) time.Duration {
		began := time.Now()
		for !enough(time.Since(began)) {
			if backend.disturbed() {
				apply()
			}
			time.Sleep(tablesEvery)
		}
		return time.Since(began)
	}
	apply()
	watch(func(since time.Duration) bool { return since > 5*time.Second })
	began := used()
	const pause = 20 * time.Second
	watch(func(since time.Duration) bool { return since > pause })
	b.ReportMetric(float64(used()-began)*1000/float64(pause), "permille")
	program := "iptables-" + string(variant)
	set := (style{family: addr.IPv4}).setName(ofClusterIPs)
	for name, damage := range map[string][]string{
		"rule-ms":    {program + " -w -t nat -R " + chainClearMasq + " 1 -j MARK --set-xmark 0x0/0x8000"},
		"element-ms": {"ipset del " + set + " 10.96.0.7", "ipset add " + set + " 10.97.0.7"},
	} {
		_, before := backend.Tally(addr.IPv4)
		for _, command := range damage {
			if out, err := exec.CommandContext(b.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
				b.Errorf("%s: %v: %s", command, err, out)
			}
		}
		took := watch(func(since time.Duration) bool {
			_, now := backend.Tally(addr.IPv4)
			return now > before || since > time.Minute
		})
		b.ReportMetric(float64(took.Milliseconds()), name)
	}
	if err := backend.Cleanup(b.Context()); err != nil {
		b.Error(err)
	}
}

// used is the time of the processor that this process and the programs that it ran have had.
func used() (all time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var usage unix.Rusage
		_ = unix.Getrusage(who, &usage)
		all += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return all
}
