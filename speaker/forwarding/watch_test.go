package forwarding

import (
	"context"
	"maps"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
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
			want.Former = map[netip.Addr]netip.Addr{}
			l.apply(want)
			var told atomic.Int64
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go l.node.Do(func() {
				defer close(ended)
				l.backend.Watch(ctx, func() { told.Add(1) })
			})
			defer func() { stop(); <-ended }()
			apply := func(to desired.Forwarding) {
				t.Helper()
				before := blackbox.Generation(t, l.node)
				l.apply(to)
				if blackbox.Generation(t, l.node) == before {
					t.Error("nothing was written")
				}
			}
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
			for i, node := range []string{"10.0.1.2", "10.0.2.2"} {
				want.Former = maps.Clone(want.Former)
				want.Former[f.other] = netip.MustParseAddr(node)
				want.FormerRevision = uint64(i + 1)
				if apply(want); !quiet() {
					t.Errorf("the address moves from %s: told", node)
				}
			}
			next := f.want(f.vip, 30053, "e2")
			next.Former, next.FormerRevision = want.Former, want.FormerRevision
			if apply(next); !quiet() {
				t.Error("a Service changes: told")
			}
			blackbox.RunOn(t, l.node, "nft", "flush", "map", "ip", "fairlead-handover", "former")
			blackbox.RunOn(t, l.node, "nft", "flush", "chain", "ip", "fairlead-handover", "arriving")
			if quiet() {
				t.Error("another program writes: not told")
			}
		})
	}
}
