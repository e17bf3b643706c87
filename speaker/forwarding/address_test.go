package forwarding

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// BenchmarkAddress measures what a new address waits for before it is announced: the
// Applies for a Service that is created, gets endpoints, and then its address. Each has the
// kernel to itself, as when the events do not come on top of each other, and together,
// when they do. It reports medians.
func BenchmarkAddress(b *testing.B) {
	for _, mode := range []Mode{IPTables, NFTables} {
		b.Run(string(mode), func(b *testing.B) {
			node := netlab.NewHost(b, "node")
			node.Forward()
			for b.Loop() {
				node.Do(func() { giveAddresses(b, mode) })
			}
		})
	}
}

func giveAddresses(b *testing.B, mode Mode) {
	const (
		rounds = 25
		pause  = 100 * time.Millisecond
	)
	backend, err := New(Config{Mode: mode, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Error(err)
		return
	}
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}, Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
	took := map[string][]time.Duration{}
	apply := func(name string, n int, change func(p *desired.Port)) {
		for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
			key := desired.PortKey{Service: view.Ref{Namespace: "shop", Name: fmt.Sprint("s", n)}, Protocol: protocol, Family: addr.IPv4}
			port := want.Ports[key]
			change(&port)
			want.Ports[key] = port
		}
		began := time.Now()
		if missing, err := backend.Apply(b.Context(), want); err != nil || len(missing) > 0 {
			b.Errorf("%s: %d ports are missing: %v", name, len(missing), err)
		}
		took[name] = append(took[name], time.Since(began))
	}
	give := func(n int, when string, between func()) {
		at := func(a, b byte) netip.Addr { return netip.AddrFrom4([4]byte{a, b, 0, byte(n)}) }
		began := time.Now()
		apply("service"+when, n, func(p *desired.Port) {
			*p = desired.Port{ClusterIP: at(10, 96), Port: 80, NodePort: uint16(30000 + n)}
		})
		between()
		apply("endpoints"+when, n, func(p *desired.Port) {
			p.Cluster = []netip.AddrPort{netip.AddrPortFrom(at(10, 244), 8080), netip.AddrPortFrom(at(10, 245), 8080)}
			p.Serving, p.Anywhere = p.Cluster, true
		})
		between()
		apply("address"+when, n, func(p *desired.Port) { p.VIPs = []netip.Addr{at(198, 18)} })
		took["all"+when] = append(took["all"+when], time.Since(began))
		time.Sleep(pause)
	}
	for n := range rounds {
		give(1+2*n, "-apart", func() { time.Sleep(pause) })
		give(2+2*n, "", func() {})
	}
	for name, times := range took {
		if name != "all-apart" {
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, name+"-ms")
		}
	}
	if err := backend.Cleanup(b.Context()); err != nil {
		b.Error(err)
	}
}
