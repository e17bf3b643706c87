package scenarios

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/probe"
	"fairlead.dev/fairlead/e2e/product"
)

// tally is what became of a row of requests.
type tally struct {
	OK, Failed int
	// Held are requests that were not answered in time while this process itself was held
	// up. They say nothing of who was asked, and are counted neither as OK nor as Failed.
	Held int
	// Longest is the longest time between two replies in a row.
	Longest time.Duration
	// Errors counts what the failed requests met, in words.
	Errors map[string]int
	// Lost are the failed requests of a flood, and Cut those of them whose connections had been made.
	Lost, Cut []span
	// Sources counts the addresses that the pods saw.
	Sources map[netip.Addr]int
	// Pods counts who answered.
	Pods map[string]int
}

// pace is the least time between two requests of a load. A client has some 28,000 ports,
// each of which rests for a minute after its connection; without a pace it would soon
// use ports anew that conntrack on the nodes still remembers.
const pace = 4 * time.Millisecond

// load sends one request after another, each on a new connection and each given a
// second, until ctx ends, and counts.
func load(ctx context.Context, from *lab.Machine, address netip.Addr, port uint16) tally {
	count := tally{Errors: map[string]int{}, Sources: map[netip.Addr]int{}, Pods: map[string]int{}}
	last := time.Now()
	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	stalls := probe.WatchStalls()
	defer stalls.Stop()
	for ; ctx.Err() == nil; <-ticks.C {
		began := time.Now()
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		reply, err := product.Ask(one, from, address, port)
		cancel()
		now := time.Now()
		if errors.Is(err, context.DeadlineExceeded) && stalls.Since(began) {
			count.Held++
			continue
		}
		if err != nil {
			count.Failed++
			count.Errors[err.Error()]++
			continue
		}
		count.OK++
		count.Sources[reply.Source]++
		count.Pods[reply.Pod]++
		count.Longest = max(count.Longest, now.Sub(last))
		last = now
	}
	return count
}
