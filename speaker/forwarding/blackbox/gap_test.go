package blackbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/outcome"
)

// wholeBackend is a backend as a process has it, connection table included.
type wholeBackend struct{ *forwarding.Forwarder }

func newWhole(mode forwarding.Mode) (blackbox.Backend, error) {
	b, err := forwarding.New(forwarding.Config{Mode: mode, Log: blackbox.Quiet()})
	return wholeBackend{b}, err
}

// Apply deletes flows, too.
func (b wholeBackend) Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error) {
	missing, err := b.Forwarder.Apply(ctx, want)
	for {
		again, unclean := b.Clean()
		if err = errors.Join(err, unclean); again == 0 {
			return missing, err
		}
		time.Sleep(again)
	}
}

// whole are the backends as a process has them, connection table included.
func whole() []contender {
	var all []contender
	for _, mode := range []forwarding.Mode{forwarding.IPTables, forwarding.NFTables} {
		all = append(all, contender{
			name: string(mode),
			create: func() (blackbox.Backend, error) {
				return newWhole(mode)
			},
			flush: map[forwarding.Mode]string{forwarding.IPTables: contenders[0].flush + " && " + contenders[1].flush, forwarding.NFTables: contenders[2].flush}[mode],
		})
	}
	return all
}

// begun is a flow that begins while nobody serves it.
type begun struct {
	what string
	flow *netlab.Conn
	err  error
}

// TestFlowsThatBeganInAGap has clients begin while there are no rules: before a Service
// is known, while somebody's flush is not repaired yet, and while no process runs. What they
// send then passes by, and the kernel keeps it so for all of the flow. They must be
// served as soon as the rules are there, and need not begin anew.
func TestFlowsThatBeganInAGap(t *testing.T) {
	t.Parallel()
	each(t, whole(), func(t *testing.T, c *cluster) {
		c.keepRestingFlows()
		first := blackbox.Service{Name: "first", N: 40, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P2), true
			p.Serving = p.Cluster
		}}
		second := blackbox.Service{Name: "second", N: 41, Fill: first.Fill}
		both := blackbox.Forwarding(first, second)
		c.Apply(blackbox.Forwarding(first))
		for _, gap := range []struct {
			name string
			n    byte
			open func()
			end  func()
		}{
			{"before the Service is known", 41, func() {}, func() { c.Apply(both) }},
			{
				"while a flush is not repaired", 40,
				func() { c.Run("sh", "-c", c.flush) }, func() { c.Apply(both) },
			},
			{
				"while nobody runs", 41,
				func() { c.Run("sh", "-c", c.flush) }, func() { c.Restart(); c.Apply(both) },
			},
		} {
			gap.open()
			c.trackFlows()
			flows := c.begin(gap.n)
			gap.end()
			for _, b := range c.await(flows, both) {
				if b.err == nil {
					var got netlab.Answer
					if got, b.err = b.flow.Ask(); b.err == nil && got.Server != "p2" {
						b.err = fmt.Errorf("%s answers", got.Server)
					}
				}
				if b.err != nil {
					t.Errorf("%s, %s: %v", gap.name, b.what, b.err)
				}
			}
		}
	})
}

// await waits for flows that began. A speaker looks again after a while, too.
func (c *cluster) await(flows func() []*begun, want desired.Forwarding) []*begun {
	done := make(chan []*begun, 1)
	go func() { done <- flows() }()
	for {
		select {
		case all := <-done:
			return all
		case <-time.After(5 * time.Second):
			c.Apply(want)
		}
	}
}

// trackFlows has the node keep a connection table whatever rules of ours there are, as the
// rules of network plugins and kubelets do.
func (c *cluster) trackFlows() {
	c.t.Helper()
	c.Run("nft", "add table inet others; add chain inet others seen { type filter hook prerouting priority 0; }; "+
		"add chain inet others sent { type filter hook output priority 0; }; flush table inet others; "+
		"add rule inet others seen ct state established accept; add rule inet others sent ct state established accept")
}

// begin begins flows to a Service from a client, a pod and the node. Its end waits for
// those of TCP.
func (c *cluster) begin(n byte) func() []*begun {
	var all []*begun
	var opening sync.WaitGroup
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		senders := c.senders(f)
		for _, s := range []sender{senders[0], senders[2], senders[4]} {
			for _, to := range []netip.Addr{blackbox.Nth(a.VIPs, n), blackbox.Nth(a.ClusterIPs, n)} {
				for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
					b := &begun{what: fmt.Sprintf("%s: %s -> %s", protocol, s.name, to)}
					all = append(all, b)
					open := func() {
						b.flow, b.err = s.dial(protocol, netip.AddrPortFrom(to, 80), answerIn)
					}
					if protocol == view.TCP {
						opening.Go(open)
						continue
					}
					open()
					if b.err == nil {
						_, err := b.flow.AskFor(silenceAfter)
						if err == nil {
							b.err = fmt.Errorf("it is served in the gap")
						}
					}
				}
			}
		}
	}
	time.Sleep(silenceAfter) // until the first segments are sent
	return func() []*begun {
		opening.Wait()
		for _, b := range all {
			if b.flow != nil {
				c.t.Cleanup(b.flow.Close)
			}
		}
		return all
	}
}
