package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
	"fairlead.dev/fairlead/speaker/pulse"
	"fairlead.dev/fairlead/speaker/report"
	"fairlead.dev/fairlead/speaker/report/standing"
)

const (
	// surveyEvery is how often this node is looked at for what breaks layer 2, and surveyAfter
	// how soon first.
	surveyEvery = 30 * time.Second
	surveyAfter = 5 * time.Second
	// doubtQPS and doubtBurst bound what is asked of the API server to note doubts. One setting
	// that is wrong may be about thousands of addresses, and what changes otherwise goes first.
	doubtQPS   = 5
	doubtBurst = 10
)

// doubtsOf keeps the doubts of this node with a client of their own, which has little to spend.
func doubtsOf(c config, config *rest.Config) (*standing.Doubts, error) {
	slow := rest.CopyConfig(config)
	slow.QPS, slow.Burst = doubtQPS, doubtBurst
	objects, err := ourObjects(slow)
	if err != nil {
		return nil, err
	}
	return standing.NewDoubts(c.node, objects, c.log), nil
}

// survey looks now and then, until ctx ends, whether something on this node keeps clients from
// addresses, or answers for them besides whoever is to.
func survey(ctx context.Context, told *layer2, reporter *report.Reporter, log *slog.Logger) error {
	failing := ""
	for wait := surveyAfter; ; wait = surveyEvery {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		want := told.last.Load()
		state, there := told.client.State()
		if want == nil || !there || !state.Settled {
			continue // nobody knows which addresses are whose
		}
		found, err := obstaclesTo(*want, state)
		switch {
		case err == nil:
			failing = ""
		case err.Error() != failing:
			failing = err.Error()
			log.Warn("cannot look at all of this node for what breaks layer 2", "error", err)
		}
		if found != nil {
			reporter.Obstacles(found)
		}
	}
}

// obstaclesTo finds what is in the way of the addresses that nodes are to answer for; nil if
// the interfaces cannot even be listed.
func obstaclesTo(want agent.Answers, state pulse.State) (map[hostchecks.Obstacle][]netip.Addr, error) {
	snapshot, err := links.Read()
	if err != nil {
		return nil, fmt.Errorf("look for what breaks layer 2: %w", err)
	}
	addresses, used := concerned(want, state, snapshot)
	kernel, err := hostchecks.Read(snapshot, used, want.Addrs)
	return hostchecks.Find(kernel, addresses), err
}

// concerned are the addresses and how this node has to do with each, and all interfaces that matter.
// Clients ask where an address belongs by its number, whatever an L2Advertisement names.
func concerned(want agent.Answers, state pulse.State, snapshot *links.Snapshot) (map[netip.Addr]hostchecks.Address, []links.Link) {
	addresses := make(map[netip.Addr]hostchecks.Address, len(want.Claims)+len(want.Elsewhere))
	used := map[int]links.Link{}
	add := func(a netip.Addr, named []string) {
		on := snapshot.Answering(a, nil, want.Addrs)
		if len(named) > 0 {
			for _, l := range snapshot.Answering(a, named, want.Addrs) {
				if !slices.ContainsFunc(on, func(o links.Link) bool { return o.Index == l.Index }) {
					on = append(on, l)
				}
			}
		}
		for _, l := range on {
			used[l.Index] = l
		}
		addresses[a] = hostchecks.Address{On: state.Owned[a].Interfaces, Asked: on}
	}
	for a, claim := range want.Claims {
		add(a, claim.Interfaces)
	}
	for _, a := range want.Elsewhere {
		add(a, nil)
	}
	return addresses, slices.Collect(maps.Values(used))
}
