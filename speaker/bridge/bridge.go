// Package bridge connects the agent of this node with pulse and the routers: it hands on what the agent wants of
// them, and passes what they report to the reporter and to the snapshots that the next decision reads.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"fairlead.dev/fairlead/internal/apiservers"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/pulse/socket"
	"fairlead.dev/fairlead/speaker/report"
	"fairlead.dev/fairlead/speaker/watch"
)

// sessionsEvery is how often the BGP sessions are read for what they do not notify of, such as the number of
// prefixes.
const sessionsEvery = 10 * time.Second

// DrainFor is how long routers have to prefer other paths before ours are withdrawn. They know
// the others already, and have to update their forwarding only.
const DrainFor = 2 * time.Second

// Layer2 hands the agent's tables to pulse.
type Layer2 struct {
	pulse *socket.Client
	last  atomic.Pointer[api.Table] // what was handed over; nil: nothing yet
}

// NewLayer2 returns what hands tables to pulse.
func NewLayer2(pulse *socket.Client) *Layer2 { return &Layer2{pulse: pulse} }

// Offer implements agent.Layer2. Its error says that pulse does not answer; that it is away is none, since the
// client keeps the table and hands it over.
func (l *Layer2) Offer(ctx context.Context, want api.Table) error {
	l.last.Store(&want)
	return unlessAway(l.pulse.Offer(ctx, want))
}

// Apply implements agent.Layer2. Its errors are those of Offer.
func (l *Layer2) Apply(ctx context.Context, want api.Table) error {
	l.last.Store(&want)
	_, err := l.pulse.Apply(ctx, want)
	return unlessAway(err)
}

func unlessAway(err error) error {
	if errors.Is(err, socket.ErrAway) {
		return nil
	}
	return err
}

// Settled returns what was handed over last and what pulse does with it, and false while pulse does not know
// which node answers for which address.
func (l *Layer2) Settled() (api.Table, api.State, bool) {
	last := l.last.Load()
	state, there := l.pulse.State()
	if last == nil || !there || !state.Settled {
		return api.Table{}, api.State{}, false
	}
	return *last, state, true
}

// keyless reports whether there was no key of the hellos to hand over.
func (l *Layer2) keyless() bool {
	last := l.last.Load()
	return last != nil && last.Key == ""
}

// Routes hands the sessions that the agent wants to BGP.
type Routes struct{ *bgp.Speaker }

// Drain implements agent.BGP. It returns the error of ctx if that ends first.
func (r Routes) Drain(ctx context.Context) error { return r.Speaker.Drain(ctx, DrainFor) }

// Kernel is told since when this node has answered for which addresses.
type Kernel interface {
	Owns(owned map[netip.Addr]time.Time)
}

// Bridge passes what pulse and the sessions report to the reporter, to the cluster's snapshots which nodes
// are alive, and to the kernel what this node answers for.
type Bridge struct {
	Layer2   *Layer2
	Sessions *bgp.Speaker
	Cluster  *watch.Watch
	Kernel   Kernel
	Reporter *report.Reporter
	Resync   func() // has the objects written again that other nodes may have marked as stale

	failures map[string]uint64 // of each peer's BFD session, as reported last
	unheard  bool              // pulse was, see unheard
}

// String names the task.
func (*Bridge) String() string { return "reporting" }

// Ready returns nil once the node does its part, and before that an error that says what it waits for.
func (b *Bridge) Ready() error { return b.Reporter.Ready() }

// Run passes on until ctx ends, and returns nil then. It meets no error.
func (b *Bridge) Run(ctx context.Context) error {
	ticker := time.NewTicker(sessionsEvery)
	defer ticker.Stop()
	b.failures = map[string]uint64{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.Layer2.pulse.Changed():
			b.passOn(b.Layer2.pulse.State())
		case <-b.Sessions.Changed():
			b.Reporter.Sessions(b.Sessions.States())
		case <-ticker.C:
			state, there := b.Layer2.pulse.State()
			b.Reporter.Owns(owned(state, there, b.Layer2.keyless())) // pulse does not notify of a key that it did not get
			b.Reporter.Sessions(b.Sessions.States())
			b.Reporter.Refresh()
		}
	}
}

// passOn passes what pulse reports, if it is there.
func (b *Bridge) passOn(state api.State, there bool) {
	b.Cluster.SetRollCall(rollCall(state))
	before := b.unheard
	if b.unheard = unheard(state, there); before && !b.unheard {
		b.Resync()
	}
	b.Reporter.Owns(owned(state, there, b.Layer2.keyless()))
	if there { // one that is away has not heard that a contest is over
		b.Kernel.Owns(since(state.Owned))
		b.Cluster.SetAdjacencies(state.Adjacent)
		b.Reporter.Handover(state.Handover)
		b.Reporter.Contests(state.Contested, state.Doubted)
		b.Reporter.Isolation(report.Network{CutOff: state.CutOff, Left: state.Left, Links: state.CutLinks, Damped: state.Damped})
	}
	for peer, why := range failed(b.failures, state.BFD) {
		b.Sessions.Cut(peer, why)
	}
	b.Reporter.BFD(state.BFD)
}

// owned returns what pulse answers for; nil while that is not known: a pulse that is away or has just begun says
// nothing. One that got no key answers for nothing until there is one, which may take long.
func owned(s api.State, there, keyless bool) map[netip.Addr]api.Ownership {
	switch {
	case !there || !s.Settled && !keyless:
		return nil
	case s.Owned == nil:
		return map[netip.Addr]api.Ownership{}
	}
	return s.Owned
}

// since returns since when addresses have been answered for.
func since(owned map[netip.Addr]api.Ownership) map[netip.Addr]time.Time {
	all := make(map[netip.Addr]time.Time, len(owned))
	for a, o := range owned {
		all[a] = o.Since
	}
	return all
}

// rollCall returns which nodes are alive and which are silent: none is while pulse is away, or has not listened
// for long enough.
func rollCall(s api.State) view.RollCall {
	if !s.Settled {
		return view.RollCall{}
	}
	return view.RollCall{Alive: s.Alive, Silent: s.Silent}
}

// unheard reports whether other nodes may not hear this one: its pulse is away, or as many nodes
// are silent as it hears.
func unheard(s api.State, there bool) bool {
	return !there || !s.Settled || len(s.Silent) > 0 && len(s.Silent) >= len(s.Alive)
}

// failed returns the peers with a BFD session that has failed since the last call, and why, so that their BGP
// sessions end (RFC 5882, 4.3), and brings the counts up to date. A session that was never up ends nothing, and one that the
// peer's administrator ended is no failure. A count from before this process, or pulse, began is no news: a
// session that came up since has shown that the peer can be reached.
func failed(counts map[string]uint64, states map[string]bfd.Status) map[string]string {
	news := map[string]string{}
	for peer, s := range states {
		if before, known := counts[peer]; known && s.Failures > before {
			news[peer] = fmt.Sprintf("BFD found that the router cannot be reached: %v", s.Diag)
		}
		counts[peer] = s.Failures
	}
	for peer := range counts {
		if _, there := states[peer]; !there {
			delete(counts, peer)
		}
	}
	return news
}

// Learning is a reporter that takes from each pass which API servers there are.
type Learning struct {
	agent.Reporter
	Servers *apiservers.Servers
}

// Report implements agent.Reporter.
func (l Learning) Report(o agent.Outcome) {
	l.Servers.Learn(desired.APIServers(o.Cluster))
	l.Reporter.Report(o)
}
