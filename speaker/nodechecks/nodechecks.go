// Package nodechecks looks every half a minute at what on this node is in the way of Services: settings that break
// layer 2, other service proxies, a connection table that is nearly full, and NodePorts that are not reserved; and at
// which networks it is on.
package nodechecks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/fairlead/internal/run"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack/sysctl"
	"fairlead.dev/fairlead/speaker/forwarding/foreignproxy"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/report"
)

// every is the time between two checks, and soon that before the first check of layer 2.
const (
	every = 30 * time.Second
	soon  = 5 * time.Second
)

// repeat calls check now and then, until ctx ends, and returns nil then. It logs errors when they change.
func repeat(ctx context.Context, wait time.Duration, log *slog.Logger, what string, check func(context.Context) error) error {
	failing := ""
	for ; ; wait = every {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		err := check(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failing = ""
		case err.Error() != failing:
			failing = err.Error()
			log.Warn("cannot look everywhere on this node", "for", what, "error", err)
		}
	}
}

// Kernel returns the task that looks whether another service proxy has rules where we do, whether the kernel
// has room for more connections, whether it gives NodePorts to connections of the node's own, and for settings of the host
// by which what the kernel forwards goes wrong, or what routers send by the BGP sessions.
func Kernel(kernel *forwarding.Forwarder, sessions *bgp.Speaker, reporter *report.Reporter, log *slog.Logger) run.Task {
	return run.Func("looking at what else is in the kernel", func(ctx context.Context) error {
		return repeat(ctx, 0, log, "rules of other service proxies", func(ctx context.Context) error {
			found, err := foreignproxy.Find(ctx)
			if ctx.Err() != nil {
				return nil
			}
			reporter.Rivals(found, err)
			by, unsure := foreignproxy.Preempting(reporter.UDPPort())
			reporter.Preempted(by)
			drops, unfollowed := filtered(sessions.States())
			reporter.Faults(append(kernel.Faults(), drops...))
			if flows, room, none := sysctl.Fill(sysctl.Dir); none == nil { // there may be no such table yet
				reporter.Connections(flows, room)
			}
			given, span, unread := localPorts(ipv4Dir)
			if unread == nil {
				reporter.LocalPorts(given, span)
			}
			return errors.Join(err, unsure, unfollowed, unread)
		})
	})
}

// Networks returns the task that looks which networks this node is on.
func Networks(reporter *report.Reporter, log *slog.Logger) run.Task {
	return run.Func("looking at the networks of this node", func(ctx context.Context) error {
		return repeat(ctx, 0, log, "networks", func(context.Context) error {
			snapshot, err := links.Read()
			if err == nil {
				reporter.Networks(snapshot.Networks())
			}
			return err
		})
	})
}

// Layer2 returns the task that looks whether something on this node keeps clients from addresses, or answers for
// them besides the node that is to. settled returns what this node is to answer for and what pulse does with it,
// and false while that is not known.
func Layer2(settled func() (api.Table, api.State, bool), reporter *report.Reporter, log *slog.Logger) run.Task {
	return run.Func("looking for what breaks layer 2", func(ctx context.Context) error {
		return repeat(ctx, soon, log, "what breaks layer 2", func(context.Context) error {
			want, state, is := settled()
			if !is {
				return nil
			}
			found, err := obstaclesTo(want, state)
			if found != nil {
				reporter.Obstacles(found)
			}
			return err
		})
	})
}

// obstaclesTo returns what is in the way of the addresses for which nodes are to answer, with an error that says
// what could not be read; nil if the interfaces cannot even be listed.
func obstaclesTo(want api.Table, state api.State) (map[hostchecks.Obstacle][]netip.Addr, error) {
	snapshot, err := links.Read()
	if err != nil {
		return nil, fmt.Errorf("look for what breaks layer 2: %w", err)
	}
	addresses, used := concerned(want, state, snapshot)
	kernel, err := hostchecks.Read(snapshot, used, want.NodeAddrs)
	return hostchecks.Find(kernel, addresses), err
}

// concerned returns the addresses with this node's part in each, and all interfaces that matter. Clients ask on
// the network to which an address belongs, whatever an L2Advertisement names.
func concerned(want api.Table, state api.State, snapshot *links.Snapshot) (map[netip.Addr]hostchecks.Address, []links.Link) {
	addresses := make(map[netip.Addr]hostchecks.Address, len(want.Claims)+len(want.Elsewhere))
	used := map[int]links.Link{}
	add := func(a netip.Addr, named []string) {
		on := snapshot.Answering(a, nil, want.NodeAddrs)
		if len(named) > 0 {
			for _, l := range snapshot.Answering(a, named, want.NodeAddrs) {
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

// ipv4Dir is where the kernel says which ports it gives to connections of the node's own processes, in both families.
const ipv4Dir = "/proc/sys/net/ipv4"

// localPorts returns what reports whether the kernel may give a port to such a connection, with the range of these as the
// kernel says it. The error is that of reading the settings below dir.
func localPorts(dir string) (given func(port uint16) bool, span string, err error) {
	all, unread := os.ReadFile(filepath.Join(dir, "ip_local_port_range"))
	reserved, unknown := os.ReadFile(filepath.Join(dir, "ip_local_reserved_ports"))
	if err := errors.Join(unread, unknown); err != nil {
		return nil, "", err
	}
	span = strings.Join(strings.Fields(string(all)), " ")
	within, err := portRange(strings.ReplaceAll(span, " ", "-"))
	if err != nil {
		return nil, "", fmt.Errorf("net.ipv4.ip_local_port_range: %w", err)
	}
	var kept []func(uint16) bool
	for text := range strings.SplitSeq(strings.TrimSpace(string(reserved)), ",") {
		if text == "" {
			continue
		}
		some, err := portRange(text)
		if err != nil {
			return nil, "", fmt.Errorf("net.ipv4.ip_local_reserved_ports: %w", err)
		}
		kept = append(kept, some)
	}
	return func(port uint16) bool {
		for _, has := range kept {
			if has(port) {
				return false
			}
		}
		return within(port)
	}, span, nil
}

// portRange reads "first-last", or "one".
func portRange(text string) (has func(uint16) bool, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err := strconv.ParseUint(from, 10, 16)
	if err != nil {
		return nil, err
	}
	last, err := strconv.ParseUint(to, 10, 16)
	if err != nil {
		return nil, err
	}
	return func(port uint16) bool { return uint64(port) >= first && uint64(port) <= last }, nil
}
