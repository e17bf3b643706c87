package forwarding

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/pulse/handover"
)

// TestOurOwnWritesWakeNothing moves addresses and changes Services while the kernel is watched: only what
// another program writes is to be told.
func TestOurOwnWritesWakeNothing(t *testing.T) {
	for _, mode := range []Mode{IPTables, NFTables} {
		t.Run(string(mode), func(t *testing.T) {
			l := newLab(t)
			l.inMode(mode)
			f := families()[0]
			want := f.want(f.vip, 30053, "e1")
			l.apply(want)
			var told atomic.Int64
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go l.node.Do(func() {
				defer close(ended)
				l.backend.Watch(ctx, func() { told.Add(1) })
			})
			over, handing := handover.New(blackbox.Quiet()), make(chan struct{}) // as pulse, another process, does
			go l.node.Do(func() {
				defer close(handing)
				_ = over.Run(ctx) // which meets no error
			})
			defer func() { stop(); <-ended; <-handing }()
			apply := func(to desired.Forwarding) {
				t.Helper()
				before := blackbox.Generation(t, l.node)
				l.apply(to)
				if blackbox.Generation(t, l.node) == before {
					t.Error("nothing was written")
				}
			}
			move := func(from netip.Addr) {
				t.Helper()
				before := blackbox.Generation(t, l.node)
				<-over.Set(map[netip.Addr]netip.Addr{f.other: from})
				if blackbox.Generation(t, l.node) == before || over.Failure() != "" {
					t.Errorf("nothing was written: %s", over.Failure())
				}
			}
			move(netip.MustParseAddr("10.0.1.9"))
			quiet := func() bool {
				before := told.Load()
				time.Sleep(2 * kernelwatch.Interval)
				return told.Load() == before
			}
			for began := time.Now(); !quiet(); l.apply(want) { // the tables are to be this process's own first
				if time.Since(began) > answerIn {
					t.Fatal("told without end")
				}
			}
			for _, node := range []string{"10.0.1.2", "10.0.2.2"} {
				if move(netip.MustParseAddr(node)); !quiet() {
					t.Errorf("the address moves from %s: told", node)
				}
			}
			next := f.want(f.vip, 30053, "e2")
			if apply(next); !quiet() {
				t.Error("a Service changes: told")
			}
			before := told.Load()
			blackbox.RunOn(t, l.node, "nft", "flush", "map", "ip", "fairlead-handover", "former")
			blackbox.RunOn(t, l.node, "nft", "flush", "chain", "ip", "fairlead-handover", "arriving")
			if mode == IPTables { // the table of nftables is this process's alone
				for began := time.Now(); told.Load() == before; time.Sleep(kernelwatch.Interval) {
					if time.Since(began) > answerIn {
						t.Fatal("another program writes: not told")
					}
				}
			}
			for began := time.Now(); !strings.Contains(blackbox.RunOn(t, l.node, "nft", "list", "table", "ip", "fairlead-handover"), "elements = { "+f.other.String()); {
				if time.Since(began) > answerIn {
					t.Fatal("what another program took from pulse's table is not there again")
				}
			}
		})
	}
}
