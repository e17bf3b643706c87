// Package hellos measures what it costs nodes to watch each other: it runs real pulse
// processes, each in a network namespace of its own, on one segment.
package hellos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.dev/fairlead/e2e/bench/process"
	"fairlead.dev/fairlead/internal/testenv/program"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/socket"
)

// lan holds the addresses of the nodes, of which there may be some two hundred.
var lan = netip.MustParsePrefix("192.0.2.0/24")

// Cost is what one node pays, on average over all.
type Cost struct {
	CPU            float64 // of its pulse, percent of one processor
	Sent, Received float64 // packets a second
	Deaths         int     // how often any node took another one for dead; all of them live
}

const (
	// acquainted is how long all may take to know each other.
	acquainted = 2 * time.Minute
	// again is the pause before a pulse that was away is told once more.
	again = 100 * time.Millisecond
)

// Measure runs so many nodes for a while. speaker is the program. It is an error if a process
// ends or the nodes do not find each other.
func Measure(ctx context.Context, speaker string, nodes int, during time.Duration) (cost Cost, err error) {
	dir, err := os.MkdirTemp("", "hellos")
	if err != nil {
		return cost, err
	}
	err = program.Run(func(tb testing.TB) (err error) {
		cost, err = measure(ctx, tb, dir, speaker, nodes, during)
		return err
	})
	return cost, errors.Join(err, os.RemoveAll(dir))
}

// node is one of them.
type node struct {
	*linkstest.Host
	name    string
	address netip.Addr
	process *process.Running
	agent   *socket.Client
	deaths  int // that it has seen
}

func measure(ctx context.Context, tb testing.TB, dir, speaker string, count int, during time.Duration) (cost Cost, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	segment := linkstest.NewSegment(tb)
	nodes := make([]*node, count)
	address := lan.Addr()
	for i := range nodes {
		address = address.Next()
		n := &node{Host: linkstest.NewHost(tb), name: fmt.Sprintf("node-%d", i+1), address: address}
		segment.Attach(n.Host, "eth0", netip.PrefixFrom(address, lan.Bits()).String())
		nodes[i] = n
	}
	if err := introduce(nodes); err != nil {
		return cost, err
	}
	defer func() { // at once, instead of each in its turn after a last word
		for _, n := range nodes {
			if n.process != nil {
				err = errors.Join(err, n.process.Abandon())
			}
		}
	}()
	for _, n := range nodes {
		if err := n.start(ctx, tb, dir, speaker); err != nil {
			return cost, err
		}
	}
	waiting, cancel := context.WithTimeoutCause(ctx, acquainted, errors.New("the nodes do not know each other"))
	defer cancel()
	for _, n := range nodes {
		if err := n.meet(waiting, nodes); err != nil {
			return cost, err
		}
	}
	before, err := total(nodes)
	if err != nil {
		return cost, err
	}
	began := time.Now()
	if err := watch(ctx, nodes, during); err != nil {
		return cost, err
	}
	after, err := total(nodes)
	if err != nil {
		return cost, err
	}
	each := time.Since(began).Seconds() * float64(count)
	cost = Cost{
		CPU:  100 * (after.cpu - before.cpu).Seconds() / each,
		Sent: float64(after.sent-before.sent) / each, Received: float64(after.received-before.received) / each,
	}
	for _, n := range nodes {
		cost.Deaths += n.deaths
	}
	return cost, nil
}

// introduce tells every kernel the stations of all nodes: they share one neighbour table,
// which has too little room for what fifty nodes would learn.
func introduce(nodes []*node) error {
	for _, n := range nodes {
		index := n.Link("eth0").Attrs().Index
		for _, other := range nodes {
			if other == n {
				continue
			}
			err := n.Netlink.NeighSet(&netlink.Neigh{
				LinkIndex: index, IP: other.address.AsSlice(), HardwareAddr: other.MAC("eth0"), State: netlink.NUD_PERMANENT,
			})
			if err != nil {
				return fmt.Errorf("%s: tell it of %s: %w", n.name, other.name, err)
			}
		}
	}
	return nil
}

// start starts the pulse of the node, and the side of the agent that talks to it.
func (n *node) start(ctx context.Context, tb testing.TB, dir, speaker string) (err error) {
	path := filepath.Join(dir, n.name, "pulse.sock")
	cmd := exec.CommandContext(ctx, speaker, "pulse", "--node-name="+n.name, "--socket="+path, "--metrics-bind-address=")
	n.process, err = process.Start(tb, n.name, cmd, func(start func()) {
		if err := n.Do(func() error { start(); return nil }); err != nil {
			tb.Error(err)
		}
	})
	if err != nil {
		return err
	}
	n.agent = socket.NewClient(path, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { ended <- n.agent.Run(running) }()
	tb.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	return nil
}

// meet hands over the table and waits until the node knows that all are alive.
func (n *node) meet(ctx context.Context, nodes []*node) error {
	table := api.Table{
		Node: n.name, NodeAddrs: []netip.Addr{n.address}, Serving: true,
		Key: view.Secret("the key of a benchmark, and of no cluster"), Peers: map[string]hello.Peer{},
	}
	for _, other := range nodes {
		if other != n {
			table.Peers[other.name] = hello.Peer{Addrs: []netip.Addr{other.address}, Ready: true}
		}
	}
	for {
		state, err := n.agent.Apply(ctx, table)
		if err == nil && state.Settled && len(state.Alive) == len(nodes) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %d alive (%w)", n.name, context.Cause(ctx), len(state.Alive), errors.Join(err, n.process.Ended()))
		case <-n.agent.Changed():
		case <-time.After(again):
		}
	}
}

// watch counts false deaths for a while: no node dies.
func watch(ctx context.Context, nodes []*node, during time.Duration) error {
	over := time.After(during)
	silent := map[*node]int{}
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over:
			return nil
		case <-ticks.C:
		}
		for _, n := range nodes {
			state, there := n.agent.State()
			if !there {
				return fmt.Errorf("%s: its pulse went away: %w", n.name, n.process.Ended())
			}
			n.deaths += max(0, len(state.Silent)-silent[n])
			silent[n] = len(state.Silent)
		}
	}
}

// sum is what all nodes have paid so far.
type sum struct {
	cpu            time.Duration
	sent, received uint64
}

func total(nodes []*node) (s sum, err error) {
	for _, n := range nodes {
		use, err := n.process.Use()
		if err != nil {
			return s, err
		}
		packets := n.Link("eth0").Attrs().Statistics
		s.cpu += use.CPU
		s.sent += packets.TxPackets
		s.received += packets.RxPackets
	}
	return s, nil
}
