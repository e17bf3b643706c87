package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// world is a kernel, a network and a router in memory. It holds what they were last told, and notes every
// moment at which an address was announced whose forwarding was not in the kernel.
type world struct {
	sync.Mutex // held by the appliers, and by a test while it looks
	kernel     map[desired.PortKey]desired.Port
	answers    api.Table
	sessions   map[string]desired.Session
	refuses    map[view.Ref]bool // Services whose changes the kernel refuses
	broken     bool              // the kernel takes nothing and cannot be read
	without    addr.Family       // the host has none of this
	peers      map[string]bool   // BGPPeers that stay
	outcome    agent.Outcome
	asked      string // what those who ask have been told of the pass
	applied    int
	drained    bool          // routers were asked to prefer other paths, after others were asked to answer and before the sessions ended
	always     []netip.Addr  // each session must have a route to these
	cleaning   func() error  // is called when stale flows are to be deleted
	cleanIn    time.Duration // for how long that may be put off
	wrong      []string
}

type forwarder struct{ *world }

func (w forwarder) Apply(_ context.Context, want desired.Forwarding) (outcome.Missing, error) {
	w.Lock()
	defer w.Unlock()
	w.applied++
	if w.broken {
		missing := outcome.Missing{}
		for key := range want.Ports {
			missing[key] = new(w.kernel[key])
		}
		return missing, errors.New("the kernel takes nothing")
	}
	have, missing := maps.Clone(want.Ports), outcome.Missing{}
	var errs []error
	for key := range have {
		if key.Family == w.without {
			delete(have, key)
			missing[key] = &desired.Port{}
			errs = append(errs, &outcome.FamilyError{Family: w.without, Err: outcome.Caused(outcome.ReasonFamilyAbsent, errors.New("none"))})
		}
		if w.refuses[key.Service] {
			delete(have, key)
			missing[key] = new(w.kernel[key])
			if old, ok := w.kernel[key]; ok {
				have[key] = old // what was there stays
			}
			errs = append(errs, fmt.Errorf("the kernel refuses %s", key.Service))
		}
	}
	w.kernel = have
	w.check("forwarding")
	return missing, errors.Join(errs...)
}

func (w forwarder) Clean() (time.Duration, error) {
	w.Lock()
	defer w.Unlock()
	if w.cleaning != nil {
		return 0, w.cleaning()
	}
	return 0, nil
}

type health struct{ *world }

func (w health) Begin(*view.Cluster) {
	w.Lock()
	defer w.Unlock()
	w.asked = "begun"
}

func (w health) Apply(want desired.Node, missing outcome.Missing, _ error) {
	w.Lock()
	defer w.Unlock()
	if w.asked != "begun" {
		w.wrong = append(w.wrong, "those who ask are told of a pass that has not begun")
	}
	w.asked = "told"
	for key, port := range want.Forwarding.Ports {
		if _, lacking := missing[key]; !lacking && !w.kernel[key].Equal(port) {
			w.wrong = append(w.wrong, fmt.Sprintf("those who ask are told of %s before the kernel has it", key.Service))
		}
	}
}

type layer2 struct{ *world }

func (w layer2) Offer(ctx context.Context, want api.Table) error { return w.Apply(ctx, want) }

func (w layer2) Apply(_ context.Context, want api.Table) error {
	w.Lock()
	defer w.Unlock()
	w.answers = want
	w.check("layer 2")
	return nil
}

type bgp struct{ *world }

func (w bgp) Apply(_ context.Context, want map[string]desired.Session) error {
	w.Lock()
	defer w.Unlock()
	for name := range w.sessions {
		if _, ok := want[name]; !ok && w.peers[name] {
			w.wrong = append(w.wrong, "the session with "+name+" is ended, though it is wanted before and after")
		}
	}
	w.follow(want)
	w.check("BGP")
	for _, address := range w.always {
		for name, session := range want {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(session.Routes)), func(p netip.Prefix) bool { return p.Contains(address) }) {
				w.wrong = append(w.wrong, fmt.Sprintf("no route leads %s to %s", name, address))
			}
		}
	}
	return nil
}

func (w bgp) Drain(context.Context) error {
	w.Lock()
	defer w.Unlock()
	w.drained = w.answers.Leaving && len(w.sessions) > 0
	return nil
}

func (w *world) Report(o agent.Outcome) {
	w.Lock()
	defer w.Unlock()
	w.outcome = o
	if w.asked != "told" {
		w.wrong = append(w.wrong, "a pass ended of which those who ask are told nothing")
	}
}

// check looks for addresses that are announced and not served.
func (w *world) check(when string) {
	served := map[netip.Addr]bool{}
	for _, port := range w.kernel {
		for _, address := range port.VIPs {
			served[address] = true
		}
	}
	for address := range w.answers.Claims {
		if !served[address] {
			w.wrong = append(w.wrong, fmt.Sprintf("after %s: %s is answered for and not forwarded", when, address))
		}
	}
	for name, session := range w.sessions {
		for prefix := range session.Routes {
			if !slices.ContainsFunc(session.Addresses(prefix), func(a netip.Addr) bool { return served[a] }) {
				w.wrong = append(w.wrong, fmt.Sprintf("after %s: %s is announced to %s and not forwarded", when, prefix, name))
			}
		}
		for prefix := range session.Leaving {
			if prefix.IsSingleIP() && !served[prefix.Addr()] {
				w.wrong = append(w.wrong, fmt.Sprintf("after %s: %s is about to be withdrawn from %s and not forwarded any more", when, prefix, name))
			}
		}
	}
}

// source is a snapshot that a test sets.
type source struct {
	mu      sync.Mutex
	cluster *view.Cluster
	changed chan struct{}
}

func (s *source) Changed() <-chan struct{} { return s.changed }

func (s *source) Snapshot() *view.Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster
}

func (s *source) set(c *view.Cluster) {
	s.mu.Lock()
	s.cluster = c
	s.mu.Unlock()
	signal.Send(s.changed)
}

// cluster has one pool, node a, a router, and a Service for each given address.
func cluster(addresses ...netip.Addr) *view.Cluster {
	c := &view.Cluster{
		Configured: true,
		Services:   map[view.Ref]*view.Service{},
		Nodes:      map[string]*view.Node{"a": {Name: "a", Ready: true, Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.11")}}},
		Pools:      map[string]*view.Pool{},
		L2Advertisements: map[string]*view.L2Advertisement{
			"l2": {Name: "l2"},
		},
		BGPAdvertisements: map[string]*view.BGPAdvertisement{"bgp": {Name: "bgp"}},
		BGPPeers:          map[string]*view.BGPPeer{"tor": {Name: "tor", PeerAddress: netip.MustParseAddr("198.51.100.1")}},
	}
	pool, err := addr.ParseRange("192.0.2.0/24")
	if err != nil {
		panic(err)
	}
	c.Pools["all"] = &view.Pool{Name: "all"}
	c.Pools["all"].Ranges = append(c.Pools["all"].Ranges, pool)
	for _, address := range addresses {
		ref := view.Ref{Namespace: "shop", Name: "s-" + strings.ReplaceAll(address.String(), ".", "-")}
		c.Services[ref] = &view.Service{
			Ref: ref, Type: view.LoadBalancer, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
			VIPs: []netip.Addr{address}, Ports: []view.ServicePort{{Protocol: view.TCP, Port: 80}},
		}
		c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{ref: {{
			Addr: netip.MustParseAddr("10.0.0.1"), Node: "a", Ready: true, Serving: true,
			Ports: []view.EndpointPort{{Protocol: view.TCP, Port: 8080}},
		}}})
	}
	return c
}

// grace is how long routers have to prefer other paths.
const grace = 2 * time.Second

func vip(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}) }

func ref(n int) view.Ref {
	return view.Ref{Namespace: "shop", Name: fmt.Sprintf("s-192-0-2-%d", n)}
}

// run starts an agent in the bubble of a synctest; wake gives it a snapshot and
// waits until it has done all that it does about it.
func run(t *testing.T, w *world) (wake func(*view.Cluster), a *agent.Agent, stop func()) {
	s := &source{changed: make(chan struct{}, 1)}
	a = agent.New(agent.Config{
		Options: desired.Options{Node: "a"}, Source: s, Forwarding: forwarder{w}, Health: health{w}, Layer2: layer2{w}, BGP: bgp{w},
		Reporter: w, Log: slog.New(slog.DiscardHandler), Resync: time.Minute, Grace: grace,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	return func(c *view.Cluster) { s.set(c); synctest.Wait() }, a, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestNothingIsTouchedBeforeTheClusterIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		_, _, stop := run(t, w)
		defer stop()
		time.Sleep(10 * time.Minute)
		if w.applied != 0 {
			t.Errorf("the kernel was written to %d times before the first snapshot", w.applied)
		}
	})
}

func TestForwardingDoesNotWaitForOurOwnKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		wake, _, stop := run(t, w)
		defer stop()
		c := cluster(vip(1))
		c.Configured = false
		wake(c)
		if len(w.kernel) != 1 {
			t.Errorf("forwarding of %d ports, want 1", len(w.kernel))
		}
		if w.sessions != nil || w.answers.Claims != nil {
			t.Errorf("told of layer 2 %v and BGP %v before the advertisements were read", w.answers, w.sessions)
		}
		if w.outcome.Announced {
			t.Error("said to be announced before the advertisements were read")
		}
		wake(cluster(vip(1)))
		if !w.outcome.Announced {
			t.Error("not said to be announced after the advertisements were read")
		}
		lost := cluster(vip(1))
		lost.Configured = false
		wake(lost)
		if !w.outcome.Announced {
			t.Error("no longer said to be announced")
		}
	})
}

func TestAnAddressThatTheKernelRefusesIsLeftToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{refuses: map[view.Ref]bool{ref(1): true}}
		wake, _, stop := run(t, w)
		t.Cleanup(stop)
		wake(cluster(vip(1), vip(2)))
		w.Lock()
		if _, ok := w.answers.Claims[vip(2)]; !ok || len(w.answers.Claims) != 1 {
			t.Errorf("claims %v, want that of %s alone", w.answers.Claims, vip(2))
		}
		if len(w.answers.Unable) != 1 || w.answers.Unable[0] != vip(1) {
			t.Errorf("unable %v, want %s", w.answers.Unable, vip(1))
		}
		if w.outcome.Err == nil {
			t.Error("the failure is not reported")
		}
		w.refuses = nil
		w.Unlock()
		time.Sleep(time.Second) // it is tried again without an event
		synctest.Wait()
		w.Lock()
		defer w.Unlock()
		if len(w.answers.Claims) != 2 || len(w.answers.Unable) != 0 || w.outcome.Err != nil {
			t.Errorf("not healed: claims %v, unable %v, error %v", w.answers.Claims, w.answers.Unable, w.outcome.Err)
		}
	})
}

func TestTheWholeStateIsAppliedAgainNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		wake, _, stop := run(t, w)
		defer stop()
		wake(cluster(vip(1)))
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		w.Lock()
		defer w.Unlock()
		if w.applied != 11 {
			t.Errorf("applied %d times in ten minutes, want once and then every minute", w.applied)
		}
	})
}

func TestStoppingLeavesEverythingAndLeavingHandsItOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		wake, a, stop := run(t, w)
		c := cluster(vip(1))
		c.HelloKey = "k"
		wake(c)
		stop()
		if len(w.kernel) != 1 || len(w.answers.Claims) != 1 || len(w.sessions["tor"].Routes) != 1 || w.answers.Leaving {
			t.Fatalf("stopping took something away: %+v", w)
		}
		if err := a.Leave(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if !w.drained {
			t.Error("the routers were not asked to prefer other paths before the sessions ended")
		}
		if len(w.kernel) != 1 {
			t.Error("leaving removed forwarding: packets on their way would be lost")
		}
		if len(w.answers.Claims) != 0 || !w.answers.Leaving || !w.answers.ShutsDown || w.answers.Key != "k" || len(w.sessions) != 0 {
			t.Errorf("still announcing, or unable to say goodbye: %+v, %v", w.answers, w.sessions)
		}
	})
}

// A new process finds the answers and routes of the one before it. One failed write
// must not take them away; a kernel that never takes anything must.
func TestTheFirstWriteMayFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{broken: true}
		wake, _, stop := run(t, w)
		t.Cleanup(stop)
		wake(cluster(vip(1)))
		w.Lock()
		if w.sessions != nil || w.answers.Unable != nil {
			t.Errorf("after one failure: told layer 2 %+v and BGP %v", w.answers, w.sessions)
		}
		w.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.Lock()
		defer w.Unlock()
		if len(w.answers.Unable) != 1 || w.sessions == nil {
			t.Errorf("after a minute others have not been asked to serve: %+v", w.answers)
		}
	})
}

// A process that is told to stop while it writes takes nothing back.
func TestCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		s := &source{changed: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		a := agent.New(agent.Config{
			Options: desired.Options{Node: "a"}, Source: s, Forwarding: interrupting{forwarder{w}, cancel}, Health: health{w}, Layer2: layer2{w}, BGP: bgp{w},
			Reporter: w, Log: slog.New(slog.DiscardHandler), Resync: time.Minute, Grace: grace,
		})
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		s.set(cluster(vip(1)))
		synctest.Wait()
		w.Lock()
		w.broken = true
		w.Unlock()
		s.set(cluster(vip(1), vip(2)))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(w.answers.Claims) != 1 || len(w.answers.Unable) != 0 || len(w.sessions["tor"].Routes) != 1 {
			t.Errorf("cut short, it took back what it had told: %+v, %v", w.answers, w.sessions)
		}
	})
}

// interrupting is a kernel in the middle of whose failing write the process is told
// to stop.
type interrupting struct {
	forwarder
	stop context.CancelFunc
}

func (i interrupting) Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error) {
	missing, err := i.forwarder.Apply(ctx, want)
	if err != nil {
		i.stop()
	}
	return missing, err
}

// A change of the length of aggregates replaces routes of addresses that stay: at no
// moment is there neither the old route nor the new one.
func TestAnAddressKeepsARouteWhenAggregatesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{peers: map[string]bool{"tor": true}}
		wake, _, stop := run(t, w)
		defer stop()
		for i, length := range []int{32, 24, 25, 0, 24, 32} {
			c := cluster(vip(1), vip(200))
			c.BGPAdvertisements["bgp"].AggregationLength = map[addr.Family]int{addr.IPv4: length}
			w.always = nil
			if i > 0 {
				w.always = []netip.Addr{vip(1), vip(200)}
			}
			wake(c)
			if len(w.wrong) > 0 {
				t.Fatalf("length %d: %s", length, strings.Join(w.wrong, "\n"))
			}
			want := map[int]int{0: 2, 32: 2, 25: 2, 24: 1}[length]
			if got := len(w.sessions["tor"].Routes); got != want {
				t.Errorf("length %d: %d routes, want %d: %v", length, got, want, w.sessions["tor"].Routes)
			}
		}
		// An aggregate stays while an address within is served, and goes with the last.
		w.always = nil
		c := cluster(vip(1))
		c.BGPAdvertisements["bgp"].AggregationLength = map[addr.Family]int{addr.IPv4: 24}
		wake(c)
		if got := slices.Collect(maps.Keys(w.sessions["tor"].Routes)); !slices.Equal(got, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}) {
			t.Errorf("announced %v", got)
		}
		c = cluster()
		c.BGPAdvertisements["bgp"].AggregationLength = map[addr.Family]int{addr.IPv4: 24}
		wake(c)
		if got := w.sessions["tor"].Routes; len(got) != 0 || len(w.wrong) != 0 {
			t.Errorf("announced %v; %v", got, w.wrong)
		}
	})
}

// Whatever changes and whatever fails, no moment exists at which an address is
// announced and not forwarded, and in the end all that can be announced is.
func TestNeverAnnouncedWithoutForwarding(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{peers: map[string]bool{"tor": true}}
			wake, _, stop := run(t, w)
			defer stop()
			var before *view.Cluster
			var rest string // of what is wanted
			for range rapid.IntRange(1, 6).Draw(rt, "changes") {
				var addresses []netip.Addr
				w.refuses = map[view.Ref]bool{}
				want := 0
				for n := range 4 {
					if !rapid.Bool().Draw(rt, "wanted") {
						continue
					}
					addresses = append(addresses, vip(n))
					w.refuses[ref(n)] = rapid.IntRange(0, 3).Draw(rt, "refused") == 0
					_, old := w.kernel[desired.PortKey{Service: ref(n), Protocol: view.TCP, Family: addr.IPv4}]
					if old || !w.refuses[ref(n)] {
						want++
					}
				}
				c := cluster(addresses...)
				length := rapid.SampledFrom([]int{32, 31}).Draw(rt, "length")
				if length < 32 {
					c.BGPAdvertisements["bgp"].AggregationLength = map[addr.Family]int{addr.IPv4: length}
				}
				other := rapid.Bool().Draw(rt, "other identity")
				if other {
					c.BGPPeers["tor"].PeerPort = 1179
				}
				excluded := rapid.Bool().Draw(rt, "excluded")
				if excluded { // another node serves, so that routers may be asked to prefer it
					c.Nodes["a"].Excluded = true
					c.Nodes["b"] = &view.Node{Name: "b", Ready: true}
				}
				now := fmt.Sprint(length, other, excluded)
				c.Changes = changes(before, c, now == rest)
				before, rest = c, now
				wake(c)
				if rapid.Bool().Draw(rt, "later") {
					time.Sleep(grace)
					synctest.Wait()
				}
				if len(w.wrong) > 0 {
					rt.Fatal(strings.Join(w.wrong, "\n"))
				}
				if excluded {
					if n := len(w.answers.Claims) + len(w.sessions["tor"].Routes); n != 0 {
						rt.Fatalf("%d claims and routes of a node that is excluded", n)
					}
					continue
				}
				routed := map[netip.Addr]bool{}
				for address := range w.answers.Claims {
					for prefix := range w.sessions["tor"].Routes {
						routed[address] = routed[address] || prefix.Contains(address)
					}
				}
				if len(w.answers.Claims) != want || len(routed) != want || slices.Contains(slices.Collect(maps.Values(routed)), false) {
					rt.Fatalf("%d claims, want %d, by the routes %v", len(w.answers.Claims), want, w.sessions["tor"].Routes)
				}
			}
		})
	})
}
