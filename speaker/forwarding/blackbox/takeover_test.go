package blackbox_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestTakeover has each backend take over from those of other modes on a live node:
// it begins while the other is at work, which then cleans up after itself. Flows of
// all kinds stay open, new ones begin all the time, and at each moment all are served.
func TestTakeover(t *testing.T) {
	t.Parallel()
	mode := func(c contender) string { return strings.SplitN(c.name, "-", 2)[0] }
	for _, first := range contenders {
		for _, next := range contenders {
			if mode(first) == mode(next) {
				continue // of one mode a node runs one backend
			}
			t.Run(first.name+" to "+next.name, func(t *testing.T) {
				t.Parallel()
				takeOver(t, &cluster{blackbox.NewCluster(t, first.create), first, t}, next)
			})
		}
	}
}

func takeOver(t *testing.T, c *cluster, next contender) {
	want := blackbox.Forwarding(slices.Concat(blackbox.Services(), moreServices())...)
	c.Apply(want)
	flows := c.establish(want)
	fresh := c.beginAlways(want)
	check := func(when string) {
		t.Helper()
		if err := live(flows); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if err := c.askAbout(0, want); err != nil {
			t.Errorf("%s, new flows: %v", when, err)
		}
		fresh.more()
	}
	c.Node.Do(func() {
		successor, err := next.create()
		if err == nil {
			_, err = successor.Apply(t.Context(), want)
		}
		if err != nil {
			t.Error(err)
		}
	})
	check("both are at work")
	c.Cleanup()
	check("the first is gone")
	if err := fresh.end(); err != nil {
		t.Errorf("flows that began meanwhile: %v", err)
	}
}

// beginning are flows that begin all the time.
type beginning struct {
	answered atomic.Int64
	done     chan struct{}
	group    *errgroup.Group
	failed   context.Context
}

// beginAlways has a client, the node and a pod begin flows without a pause, of both families, in
// TCP and UDP, to the ClusterIP, the VIP and the NodePort of the first Service. What they
// ask over UDP is not asked again, so that not a packet may be lost.
func (c *cluster) beginAlways(want desired.Forwarding) *beginning {
	b := &beginning{done: make(chan struct{})}
	b.group, b.failed = errgroup.WithContext(c.t.Context())
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		port := want.Ports[blackbox.Key("cluster", view.TCP, f)]
		all := []netip.AddrPort{
			netip.AddrPortFrom(port.ClusterIP, port.Port), netip.AddrPortFrom(port.VIPs[0], port.Port), netip.AddrPortFrom(a.Node, port.NodePort),
		}
		for _, s := range []sender{c.senders(f)[0], c.senders(f)[2], c.senders(f)[4]} {
			b.group.Go(func() error { return b.from(s, all) })
		}
	}
	b.more()
	return b
}

// from begins one flow after another until the end, or until one is not served.
func (b *beginning) from(s sender, all []netip.AddrPort) error {
	for i := 0; ; i++ {
		select {
		case <-b.done:
			return nil
		default:
		}
		protocol, to := []view.Protocol{view.TCP, view.UDP}[i%2], all[i/2%len(all)]
		got, err := askOnce(s, protocol, to, answerIn)
		if err != nil {
			return fmt.Errorf("%s: %s -> %s: %s", protocol, s.name, to, said(got, err))
		}
		b.answered.Add(1)
	}
}

// more waits until more flows have begun and are served, or one was not.
func (b *beginning) more() {
	for enough := b.answered.Load() + 50; b.answered.Load() < enough && b.failed.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
}

func (b *beginning) end() error {
	close(b.done)
	return b.group.Wait()
}
