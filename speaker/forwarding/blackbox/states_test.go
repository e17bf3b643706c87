package blackbox_test

import (
	"flag"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/outcome"
)

var walk = flag.Duration("walk", 10*time.Second, "how long each backend walks from state to state")

// TestAnyStateToAnyState walks from any state to any other, far or near, at times over a restart
// or twice to the same, and asks after each step about every destination of the
// state and of the one before: what comes of packets depends on the wanted state
// alone. Services of more than a few addresses or endpoints are large ones here, which are programmed in portions: after the first,
// packets meet what is said to be in place.
func TestAnyStateToAnyState(t *testing.T) {
	t.Parallel()
	each(t, inPortions(15), func(t *testing.T, c *cluster) {
		c.routeLocalnet()
		deadline := time.Now().Add(*walk)
		rapid.Check(t, func(rt *rapid.T) {
			var before desired.Forwarding
			told := teller{ports: map[desired.PortKey]desired.Port{}}
			c.Cleanup()
			for i := range rapid.IntRange(3, 12).Draw(rt, "steps") {
				if time.Now().After(deadline) {
					return // enough of the generator's states were seen
				}
				want := step(rt, before)
				if rapid.IntRange(0, 3).Draw(rt, "restart") == 0 {
					c.Restart()
				}
				state := told.next(want, rapid.IntRange(0, 3).Draw(rt, "revisions"))
				if missing, err := c.Pass(state); len(outcome.PutOff(err)) > 0 {
					c.forgetFlows(rt)
					if err := c.askAbout(i, inPlace(want, missing), want, before); err != nil {
						rt.Fatalf("step %d, with %d ports put off: %v", i, len(missing), err)
					}
					if rapid.IntRange(0, 3).Draw(rt, "restart meanwhile") == 0 {
						c.Restart()
					}
				}
				for range rapid.IntRange(1, 2).Draw(rt, "times") {
					if missing, err := c.Try(state); err != nil || len(missing) > 0 {
						rt.Fatalf("step %d: %d ports are missing: %v", i, len(missing), err)
					}
				}
				c.forgetFlows(rt)
				if err := c.askAbout(i, want, before); err != nil {
					rt.Fatalf("step %d: %v", i, err)
				}
				before = want
			}
		})
	})
}

// inPlace is a state as it is without what is missing.
func inPlace(want desired.Forwarding, missing outcome.Missing) desired.Forwarding {
	want.Ports = maps.Clone(want.Ports)
	for key, held := range missing {
		if delete(want.Ports, key); held.Port != 0 {
			want.Ports[key] = *held
		}
	}
	return want
}

// step draws a state that shares any part of its ports with the one before, so that
// some change while others that claim the same destinations stay.
func step(t *rapid.T, before desired.Forwarding) desired.Forwarding {
	want := blackbox.Draw(t, "want")
	kept := rapid.SampledFrom([]uint64{0, 1<<64 - 1, rapid.Uint64().Draw(t, "kept")}).Draw(t, "keep")
	if kept == 1<<64-1 { // and nothing comes but what goes
		gone := rapid.Uint64().Draw(t, "gone")
		want = before
		want.Ports = maps.Clone(before.Ports)
		for i, key := range slices.SortedFunc(maps.Keys(before.Ports), desired.PortKey.Compare) {
			if gone>>(i%64)&1 == 1 {
				delete(want.Ports, key)
			}
		}
		return want
	}
	for i, key := range slices.SortedFunc(maps.Keys(before.Ports), desired.PortKey.Compare) {
		if kept>>(i%64)&1 == 1 {
			want.Ports[key] = before.Ports[key]
		}
	}
	return want
}

// teller tells states the way the speaker does: in one map that it changes in
// place, with revisions that let a backend pay only for what changed.
type teller struct {
	ports    map[desired.PortKey]desired.Port
	revision uint64
}

// next is the wanted state as the next revision of what was told. With more than one
// revision between, a backend has missed some; with none, nobody counts.
func (l *teller) next(want desired.Forwarding, revisions int) desired.Forwarding {
	told := want
	told.Ports = l.ports
	changes := want.Changes(l.ports, 0, nil)
	l.revision += uint64(revisions)
	if revisions > 0 {
		told.Revision, told.Since = l.revision, l.revision-1
		told.Changed = map[desired.PortKey]struct{}{}
	}
	for i, change := range changes {
		if change.To == nil {
			delete(l.ports, change.Key)
		} else {
			l.ports[change.Key] = *change.To
		}
		if revisions == 1 || revisions > 1 && i%2 == 0 { // the others changed in a revision that was missed
			told.Changed[change.Key] = struct{}{}
		}
	}
	return told
}

// forgetFlows empties the node's connection table: a new flow that happens to have
// the ports of an old one would go where that went.
func (c *cluster) forgetFlows(t *rapid.T) {
	var err error
	c.Node.Do(func() { err = netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	if err != nil {
		t.Fatalf("flush the connection table: %v", err)
	}
}

// askAbout asks about each destination in the states, each by one sender, the senders
// taking turns, and compares the answers with what the first of the states demands.
func (c *cluster) askAbout(turn int, want desired.Forwarding, others ...desired.Forwarding) error {
	var all asking
	for _, f := range addr.Families() {
		senders := c.senders(f)
		for protocol, destinations := range onLoopback(f, append(others, want)) {
			for i, to := range destinations {
				local := c.localSenders()
				s := local[(i+turn)%len(local)]
				all.add(func() error { return c.expect(s, protocol, to, want) })
			}
		}
		for protocol, destinations := range destinations(f, append(others, want)) {
			for i, to := range destinations {
				s := senders[(i+turn)%len(senders)]
				all.add(func() error { return c.expect(s, protocol, to, want) })
			}
		}
	}
	return all.all()
}

// destinations are all that packets of one family are addressed to in any of the
// states, sorted.
func destinations(f addr.Family, states []desired.Forwarding) map[view.Protocol][]netip.AddrPort {
	a := blackbox.Plan(f)
	found := map[view.Protocol]map[netip.AddrPort]bool{view.TCP: {}, view.UDP: {}}
	for protocol := range found { // what is for no Service
		for _, to := range []netip.AddrPort{
			netip.AddrPortFrom(blackbox.Nth(a.ClusterIPs, 1), 9), netip.AddrPortFrom(blackbox.Nth(a.ClusterIPs, 9), 9),
			netip.AddrPortFrom(a.P1, blackbox.ServePort), netip.AddrPortFrom(a.P3, blackbox.ServePort),
			netip.AddrPortFrom(blackbox.Nth(a.VIPs, blackbox.FirstBound-1), 9), netip.AddrPortFrom(a.Bound[0], 9), netip.AddrPortFrom(blackbox.Nth(a.Nobody, 5), 80),
		} {
			found[protocol][to] = true
		}
	}
	for _, state := range states {
		for key, p := range state.Ports {
			if key.Family != f {
				continue
			}
			for _, to := range slices.Concat([]netip.Addr{p.ClusterIP}, p.VIPs, p.ExternalIPs) {
				if to.IsValid() {
					found[key.Protocol][netip.AddrPortFrom(to, p.Port)] = true
				}
			}
			if p.NodePort != 0 {
				for _, to := range []netip.Addr{a.Node, a.Aside, a.Bound[0], a.Bound[2], a.Other} {
					found[key.Protocol][netip.AddrPortFrom(to, p.NodePort)] = true
				}
			}
		}
	}
	sorted := map[view.Protocol][]netip.AddrPort{}
	for protocol, all := range found {
		for to := range all {
			sorted[protocol] = append(sorted[protocol], to)
		}
		slices.SortFunc(sorted[protocol], netip.AddrPort.Compare)
	}
	return sorted
}
