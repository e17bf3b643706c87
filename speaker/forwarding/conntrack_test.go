package forwarding

import (
	"errors"
	"maps"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
	"fairlead.dev/fairlead/speaker/outcome"
)

// flows lists the destinations of the node's UDP flows.
func (l *lab) flows(f addr.Family) map[netip.AddrPort]bool {
	l.t.Helper()
	to := map[netip.AddrPort]bool{}
	var err error
	l.node.Do(func() {
		_, err = conntrack.Delete(f, view.UDP, &sync.Mutex{}, func(flow conntrack.Flow) bool {
			to[flow.To] = true
			return false
		})
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return to
}

// TestUDPFlowsOfNodePortsOnAnyAddress has NodePorts answer on all addresses of the node:
// their flows follow the Service, and those that go through the node to the same port of
// somebody else are left alone.
func TestUDPFlowsOfNodePortsOnAnyAddress(t *testing.T) {
	l := newLab(t)
	for _, f := range families() {
		on := func(want desired.Forwarding, prefixes ...netip.Prefix) desired.Forwarding {
			want.NodePorts = prefixes
			return want
		}
		all := netip.PrefixFrom(f.node, 0).Masked()
		second := map[addr.Family]netip.Addr{
			addr.IPv4: netip.MustParseAddr("10.0.1.1"), addr.IPv6: netip.MustParseAddr("fd00:0:0:1::1"),
		}[f.Family]
		l.apply(on(f.want(f.vip, 8080, "e1"), all))
		ours, theirs := netip.AddrPortFrom(second, 8080), netip.AddrPortFrom(f.endpoint["e2"], 8080)
		flow, passing := l.dial(ours), l.dial(theirs)
		defer flow.Close()
		defer passing.Close()
		expect := func(when, server string) {
			t.Helper()
			if got, err := flow.Ask(); err != nil || got.Server != server {
				t.Errorf("%s, %s: %v, %v, want an answer of %s", f, when, got, err, server)
			}
		}
		expect("at first", "e1")
		if got, err := passing.Ask(); err != nil || got.Server != "e2" {
			t.Fatalf("%s: past the NodePorts: %v, %v", f, got, err)
		}
		l.apply(on(f.want(f.vip, 8080), all)) // no endpoints at all
		if flows := l.flows(f.Family); flows[ours] || !flows[theirs] {
			t.Errorf("%s: the flows left are %v, want %s and not %s", f, flows, theirs, ours)
		}
		l.apply(on(f.want(f.vip, 8080, "e1"), all))
		expect("again", "e1")
		l.apply(on(f.want(f.vip, 8080, "e1"), addr.HostPrefix(f.node)))
		if l.flows(f.Family)[ours] {
			t.Errorf("%s: the flow to %s is left, where NodePorts no longer answer", f, ours)
		}
	}
}

// clean applies and deletes what that made stale.
func clean(t *testing.T, f *Forwarder, want desired.Forwarding) (outcome.Missing, error) {
	t.Helper()
	missing, err := f.Apply(t.Context(), want)
	_, unclean := f.Clean()
	return missing, errors.Join(err, unclean)
}

// TestFlowsThatCannotBeDeletedAreTriedAgain has the table fail once.
func TestFlowsThatCannotBeDeletedAreTriedAgain(t *testing.T) {
	synctest.Test(t, triedAgain)
}

func triedAgain(t *testing.T) {
	f := families()[0]
	endpoint := netip.AddrPortFrom(f.endpoint["e1"], 8080)
	stale := conntrack.Flow{To: netip.AddrPortFrom(f.vip, 53), Answers: netip.AddrPortFrom(f.endpoint["e2"], 8080)}
	for when, want := range map[string]desired.Forwarding{"the same": f.want(f.vip, 0, "e1"), "a change": f.want(f.vip, 30053, "e1")} {
		calls, gone := 0, 0
		broken := errors.New("no buffer space")
		c := assembled(t, &scripted{}, func(_ addr.Family, _ view.Protocol, _ sync.Locker, isStale func(conntrack.Flow) bool) (int, error) {
			if calls++; calls == 1 {
				return 0, broken
			}
			if isStale(stale) && !isStale(conntrack.Flow{To: stale.To, Answers: endpoint}) {
				gone++
			}
			return gone, nil
		})
		if _, err := clean(t, c, f.want(f.vip, 0, "e1")); !errors.Is(err, broken) {
			t.Errorf("%s: error %v, want %v", when, err, broken)
		}
		if _, err := clean(t, c, want); err != nil || gone != 1 {
			t.Errorf("%s: after the failure %d flows are deleted, error %v", when, gone, err)
		}
		if _, err := clean(t, c, want); err != nil || calls != 2 {
			t.Errorf("%s: the table is read %d times, want 2 (error %v)", when, calls, err)
		}
	}
}

// TestPortsThatAreMissingKeepTheirFlows leaves flows alone whose port the kernel did not
// take, until it does.
func TestPortsThatAreMissingKeepTheirFlows(t *testing.T) {
	f := families()[0]
	old := conntrack.Flow{To: netip.AddrPortFrom(f.vip, 53), Answers: netip.AddrPortFrom(f.endpoint["e1"], 8080)}
	deleted := 0
	backend := &scripted{}
	c := assembled(t, backend, deletions(old, &deleted))
	apply := func(want desired.Forwarding) {
		t.Helper()
		if _, err := clean(t, c, want); err != nil {
			t.Fatal(err)
		}
	}
	apply(f.want(f.vip, 0, "e1"))
	next := f.want(f.vip, 0, "e2")
	for key := range next.Ports {
		backend.missing = outcome.Missing{key: new(f.want(f.vip, 0, "e1").Ports[key])}
	}
	apply(next)
	if deleted != 0 {
		t.Error("the flow is deleted though its old rules are in place")
	}
	backend.missing = nil
	apply(next)
	if deleted != 1 {
		t.Error("the flow is left though its new rules are in place")
	}
}

// deletions is a connection table with one flow, and counts how often that is deleted.
func deletions(flow conntrack.Flow, count *int) func(addr.Family, view.Protocol, sync.Locker, func(conntrack.Flow) bool) (int, error) {
	return func(_ addr.Family, _ view.Protocol, lock sync.Locker, isStale func(conntrack.Flow) bool) (int, error) {
		if !isStale(flow) {
			return 0, nil
		}
		lock.Lock()
		defer lock.Unlock()
		if !isStale(flow) {
			return 0, nil
		}
		*count++
		return 1, nil
	}
}

// TestFlowsOfWhatCannotBeRemoved has a Service go whose rules stay for some attempts: its
// flows would come again with the next packet, so they are deleted when the rules are gone.
func TestFlowsOfWhatCannotBeRemoved(t *testing.T) {
	f := families()[0]
	flow := conntrack.Flow{To: netip.AddrPortFrom(f.vip, 53), Answers: netip.AddrPortFrom(f.endpoint["e1"], 8080)}
	backend, deleted := &scripted{}, 0
	c := assembled(t, backend, deletions(flow, &deleted))
	with := f.want(f.vip, 0, "e1")
	with.Revision = 1
	without := desired.Forwarding{
		Ports: map[desired.PortKey]desired.Port{}, NodePorts: with.NodePorts,
		Delta: desired.Delta[desired.PortKey]{Revision: 2, Since: 1, Changed: map[desired.PortKey]struct{}{}},
	}
	stays := outcome.Missing{}
	for key, port := range with.Ports {
		without.Changed[key], stays[key] = struct{}{}, &port
	}
	for _, step := range []struct {
		name    string
		want    desired.Forwarding
		missing outcome.Missing
		deleted int
	}{
		{"it comes", with, nil, 0},
		{"it cannot be removed", without, stays, 0},
		{"nor the next time", without, stays, 0},
		{"nor then", without, stays, 0},
		{"it can", without, nil, 1},
		{"nothing", without, nil, 1},
	} {
		backend.missing = step.missing
		if _, err := clean(t, c, step.want); err != nil || deleted != step.deleted {
			t.Errorf("%s: the flow was deleted %d times, want %d; error %v", step.name, deleted, step.deleted, err)
		}
	}
}

// TestFlowsOfAServiceOnTheNumberOfANodePort has a Service with an address of the node and the number
// of another one's NodePort. It gets what comes there, and its flows are its own.
func TestFlowsOfAServiceOnTheNumberOfANodePort(t *testing.T) {
	f := families()[0]
	at := netip.MustParseAddrPort("127.0.0.1:30053") // an address that every machine has
	flow := conntrack.Flow{To: at, Answers: netip.AddrPortFrom(f.endpoint["e2"], 8080)}
	deleted := 0
	c := assembled(t, &scripted{}, deletions(flow, &deleted))
	both := func(nodePort string, other ...string) desired.Forwarding {
		want := f.want(f.vip, 30053, nodePort)
		want.Loopback = []netip.Prefix{addr.Loopback()}
		for key, p := range f.want(at.Addr(), 0, other...).Ports {
			key.Service.Name, p.Port = "other", at.Port()
			want.Ports[key] = p
		}
		return want
	}
	for _, step := range []struct {
		name    string
		want    desired.Forwarding
		deleted int
	}{
		{"at first", both("e1", "e2"), 0},
		{"the NodePort has another endpoint", both("e3", "e2"), 0},
		{"the Service has", both("e3", "e1"), 1},
		{"it is gone, and the flow is the NodePort's", both("e3"), 2},
	} {
		if _, err := clean(t, c, step.want); err != nil || deleted != step.deleted {
			t.Errorf("%s: the flow was deleted %d times, want %d; error %v", step.name, deleted, step.deleted, err)
		}
	}
}

// TestFlowsOfPlacesThatCannotBeChanged narrows down where NodePorts answer, which the kernel
// does not take in one family for a while.
func TestFlowsOfPlacesThatCannotBeChanged(t *testing.T) {
	f := families()[0]
	want := f.want(f.vip, 30053, "e1")
	want.Loopback = []netip.Prefix{addr.Loopback()}
	flow := conntrack.Flow{To: netip.MustParseAddrPort("127.0.0.1:30053"), Answers: netip.AddrPortFrom(f.endpoint["e1"], 8080)}
	backend, deleted := &scripted{}, 0
	c := assembled(t, backend, deletions(flow, &deleted))
	narrow := want
	narrow.Loopback = nil
	fails := &outcome.FamilyError{Family: addr.IPv4, Err: errors.New("the lock")}
	for _, step := range []struct {
		name    string
		want    desired.Forwarding
		err     error
		deleted int
	}{
		{"at first", want, nil, 0},
		{"the kernel does not take it", narrow, fails, 0},
		{"nor the next time", narrow, fails, 0},
		{"it does", narrow, nil, 1},
	} {
		backend.err = step.err
		if _, err := clean(t, c, step.want); !errors.Is(err, step.err) || deleted != step.deleted {
			t.Errorf("%s: the flow was deleted %d times, want %d; error %v", step.name, deleted, step.deleted, err)
		}
	}
}

// TestFlowsThatEnterTheTableLateAreFound has flows enter the table after it was looked
// through, by packets that met the old rules. They must not stay, and the table must not be
// looked through for ever.
func TestFlowsThatEnterTheTableLateAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := families()[0]
		for _, protocol := range []view.Protocol{view.UDP, view.TCP} {
			want := f.want(f.vip, 0, "e1")
			for key, port := range want.Ports {
				delete(want.Ports, key)
				key.Protocol = protocol
				want.Ports[key] = port
			}
			past := netip.AddrPortFrom(f.vip, 53)
			table := map[conntrack.Flow]bool{}
			calls := 0
			c := assembled(t, &scripted{}, func(_ addr.Family, _ view.Protocol, _ sync.Locker, isStale func(conntrack.Flow) bool) (int, error) {
				calls++
				maps.DeleteFunc(table, func(flow conntrack.Flow, _ bool) bool { return isStale(flow) })
				return 0, nil
			})
			pass := func() {
				t.Helper()
				if _, err := clean(t, c, want); err != nil {
					t.Fatal(err)
				}
			}
			pass()
			table[conntrack.Flow{To: past, Answers: past}] = true
			for range 10 {
				time.Sleep(afterwards)
				pass()
			}
			if len(table) > 0 || calls != 2 {
				t.Errorf("%s: after %d looks at the table it holds %v", protocol, calls, table)
			}
		}
	})
}

// TestFlowsOfAServiceThatAnotherProxyHasNow are deleted when the Service leaves, and not those that
// the other proxy makes after that, to the same endpoints. Of a Service that is gone they are.
func TestFlowsOfAServiceThatAnotherProxyHasNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := families()[0]
		with := f.want(f.vip, 30053, "e1")
		for name, test := range map[string]struct {
			foreign bool
			before  time.Duration // it was changed
			deleted int
		}{
			"foreign": {true, time.Hour, 1}, "foreign soon after a change": {true, afterwards / 2, 1}, "gone": {false, time.Hour, 2},
		} {
			without := desired.Forwarding{NodePorts: with.NodePorts, Foreign: map[view.Ref][]netip.Addr{}}
			if test.foreign {
				for key := range with.Ports {
					without.Foreign[key.Service] = nil
				}
			}
			deleted := 0
			flow := conntrack.Flow{To: netip.AddrPortFrom(f.vip, 53), Answers: netip.AddrPortFrom(f.endpoint["e1"], 8080)}
			c := assembled(t, &scripted{}, deletions(flow, &deleted))
			pass := func(want desired.Forwarding) {
				t.Helper()
				if _, err := clean(t, c, want); err != nil {
					t.Fatal(err)
				}
			}
			pass(f.want(f.vip, 0, "e1"))
			time.Sleep(time.Hour)
			pass(f.want(f.vip, 0, "e1"))
			pass(with)
			time.Sleep(test.before)
			pass(with)
			for range 4 {
				pass(without)
				time.Sleep(afterwards)
			}
			if deleted != test.deleted {
				t.Errorf("%s: its flow was deleted %d times, want %d", name, deleted, test.deleted)
			}
			pass(with)
			time.Sleep(afterwards)
			pass(with)
			if len(c.flows.pending)+len(c.flows.looked)+len(c.flows.last) > 0 {
				t.Errorf("%s: %d destinations are to be looked at, %d again, %d for the last time", name, len(c.flows.pending), len(c.flows.looked), len(c.flows.last))
			}
		}
	})
}

// TestWhatIsNewMayWait: flows are looked at at once if an endpoint or a destination goes, and a little later if there
// are only more of them.
func TestWhatIsNewMayWait(t *testing.T) {
	f := families()[0]
	c := assembled(t, &scripted{}, func(addr.Family, view.Protocol, sync.Locker, func(conntrack.Flow) bool) (int, error) { return 0, nil })
	none := f.want(f.vip, 0)
	none.Ports = nil
	for _, step := range []struct {
		what string
		want desired.Forwarding
		wait time.Duration
	}{
		{"the first rules", none, 0},
		{"no endpoints", f.want(f.vip, 0), newFlowsWait},
		{"an endpoint", f.want(f.vip, 0, "e1"), newFlowsWait},
		{"another endpoint", f.want(f.vip, 0, "e1", "e2"), newFlowsWait},
		{"a NodePort", f.want(f.vip, 30053, "e1", "e2"), newFlowsWait},
		{"nothing", f.want(f.vip, 30053, "e1", "e2"), 0},
		{"an endpoint less", f.want(f.vip, 30053, "e1"), 0},
		{"no NodePort", f.want(f.vip, 0, "e1"), 0},
		{"no Service", desired.Forwarding{}, 0},
	} {
		if _, err := c.Apply(t.Context(), step.want); err != nil {
			t.Fatal(err)
		}
		if got := c.CleanWithin(); got != step.wait {
			t.Errorf("%s: it may wait for %v, want %v", step.what, got, step.wait)
		}
		if _, err := c.Clean(); err != nil {
			t.Fatal(err)
		}
	}
}
