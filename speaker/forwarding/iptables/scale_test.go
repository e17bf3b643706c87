package iptables

import (
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

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

func repair(b *testing.B, variant Variant, n int) {
	backend := New(Config{Log: blackbox.Quiet(), Variant: variant})
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
	var chain string
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
