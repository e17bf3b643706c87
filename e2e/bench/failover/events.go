package failover

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"fairlead.dev/fairlead/e2e/probe"
)

// rebootWindow is for how long the client is watched that asks while a node reboots: until its endpoints are
// gone, if by nothing else then by the Node's condition.
const rebootWindow = time.Minute

// event is what happens to what announces by BGP.
type event struct {
	happens       func() error
	window        time.Duration
	without, lost measure // time without a route, "": not taken, and questions without an answer
	undo          func() error
}

// killed is that the processes of a speaker are killed.
func (b *bench) killed(ctx context.Context, without, lost measure) event {
	return event{killing(ctx, b.Node(1), b.processes), b.Window, without, lost, nothing}
}

// events are those of one round, with BFD where there is BFD.
func (b *bench) events(ctx context.Context) []event {
	n := b.Node(1)
	all := []event{
		{func() error { return b.restart(ctx) }, b.Window, rolled, rolledLost, nothing},
		{func() error { return n.Shutdown(ctx, true) }, rebootWindow, "", rebootedLost, func() error { return n.Start(ctx) }},
	}
	if b.bfd {
		all = append(all, b.killed(ctx, flappedBFD, flappedBFDLost))
	}
	if b.frr != "" {
		all = append(all, event{killing(ctx, n, b.frr), b.Window, frrFlapped, frrLost, nothing})
	}
	return all
}

// happen lets an event happen once all is well, and adds up the time for which the router lacks the route over a
// node, and what the client asks in vain, until the window after it is over.
func (b *bench) happen(ctx context.Context, vip netip.Addr, e event) error {
	if !b.wants(e.without, e.lost) {
		return nil
	}
	if err := errors.Join(b.WaitReady(ctx), b.ready(ctx)); err != nil {
		return err
	}
	if _, err := b.route(ctx, vip, "routes over all nodes", b.everyNode); err != nil {
		return err
	}
	asking := b.watch(ctx, vip)
	watching, stop := context.WithCancel(ctx)
	gone := make(chan time.Duration, 1)
	go func() { gone <- b.without(watching, vip) }()
	err := e.happens()
	time.Sleep(e.window)
	stop()
	without, lost := <-gone, probe.Lost(asking.End())
	if err := errors.Join(err, e.undo()); err != nil {
		return err
	}
	if e.without != "" {
		b.took(e.without, without)
	}
	b.add(e.lost, float64(lost))
	return nil
}

// without adds up, over all nodes, the time for which the router has no route over a node, until ctx ends.
func (b *bench) without(ctx context.Context, vip netip.Addr) time.Duration {
	var gone time.Duration
	for last := time.Now(); ctx.Err() == nil; {
		time.Sleep(lookEvery)
		hops, err := b.Router.Routes(netip.PrefixFrom(vip, vip.BitLen()))
		if err != nil {
			continue // the next look is for the time of this one, too
		}
		now := time.Now()
		gone += time.Duration(len(b.Nodes())-len(hops)) * now.Sub(last)
		last = now
	}
	return gone
}
