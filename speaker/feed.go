package main

import (
	"context"
	"time"

	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/pulse"
	"fairlead.dev/fairlead/speaker/report"
	"fairlead.dev/fairlead/speaker/watch"
)

// sessionsEvery is how often the BGP sessions are looked at for what no
// notice tells of, such as the number of prefixes.
const sessionsEvery = 10 * time.Second

// feed hands on what pulse and the sessions say: all of it to the reporter, and to the
// cluster's view who is alive. What others may have marked of this node is written again.
type feed struct {
	answers  *layer2
	sessions *bgp.Speaker
	cluster  *watch.Watch
	reporter *report.Reporter
	told     standings

	paths paths // of BFD, as they were told last
	alone bool  // pulse heard no other node then
}

func (*feed) String() string { return "reporting" }

// Ready returns the error that the node does not do its part yet.
func (f *feed) Ready() error { return f.reporter.Ready() }

// Run hands on until ctx ends.
func (f *feed) Run(ctx context.Context) error {
	ticker := time.NewTicker(sessionsEvery)
	defer ticker.Stop()
	f.paths = paths{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.answers.client.Changed():
			f.pulse(f.answers.client.State())
		case <-f.sessions.Changed():
			f.reporter.Sessions(sessionsOf(f.sessions))
		case <-ticker.C:
			state, there := f.answers.client.State()
			f.reporter.Owns(ownerships(state, there, f.answers.keyless())) // pulse has no news of a key that it did not get
			f.reporter.Sessions(sessionsOf(f.sessions))
			f.reporter.Refresh()
		}
	}
}

// pulse hands on what pulse says, if it is there.
func (f *feed) pulse(state pulse.State, there bool) {
	f.cluster.SetRollCall(rollCall(state))
	before := f.alone
	if f.alone = unheard(state, there); before && !f.alone {
		f.told.doubt()
	}
	f.reporter.Owns(ownerships(state, there, f.answers.keyless()))
	if there { // one that is away has not heard that a contest is over
		f.cluster.SetAdjacencies(state.Adjacent)
		f.cluster.SetFormerOwners(state.Former)
		f.reporter.Contests(contests(state), doubts(state))
		f.reporter.Stands(report.Network{CutOff: state.CutOff, Left: state.Left, Links: state.CutLinks})
	}
	for peer, why := range f.paths.failed(state.BFD) {
		f.sessions.Cut(peer, why)
	}
	f.reporter.BFD(bfdOf(state.BFD))
}
