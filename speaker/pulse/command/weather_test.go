package command_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// weatherFor is how long bad weather lasts; FAIRLEAD_WEATHER has it last longer.
func weatherFor(t *testing.T) time.Duration {
	t.Helper()
	given := os.Getenv("FAIRLEAD_WEATHER")
	if given == "" && testing.Short() {
		return 15 * time.Second
	}
	if given == "" {
		return time.Minute
	}
	lasts, err := time.ParseDuration(given)
	if err != nil {
		t.Fatalf("FAIRLEAD_WEATHER: %v", err)
	}
	return lasts
}

// storm is a lab with several addresses, which are spread over its nodes, and a gateway.
type storm struct {
	*lab
	addresses []netip.Addr
	router    string // the plug of the gateway
	asking    *asking
}

func newStorm(t *testing.T, p plan, nodes, addresses int) *storm {
	t.Helper()
	return stormOf(t, newLabOf(t, p, nodes), addresses)
}

// inBothAtOnce is inBoth for a test that waits most of the time: both take one turn of those that
// run in parallel.
func inBothAtOnce(t *testing.T, test func(t *testing.T, p plan)) {
	t.Helper()
	allAtOnce(t, map[string]func(*testing.T){
		"IPv4": func(t *testing.T) { test(t, ipv4) },
		"IPv6": func(t *testing.T) { test(t, ipv6) },
	})
}

// allAtOnce has tests that wait most of the time take one turn of those that run in parallel.
func allAtOnce(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	var ended sync.WaitGroup
	for name, test := range tests {
		ended.Go(func() { t.Run(name, test) })
	}
	ended.Wait()
}

// inStorms runs a test among three, four and five nodes, or with -short among five, of either family.
func inStorms(t *testing.T, test func(t *testing.T, p plan, nodes int)) {
	t.Helper()
	fewest := 3
	if testing.Short() {
		fewest = 5
	}
	for nodes := fewest; nodes <= 5; nodes++ {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			t.Parallel()
			inBothAtOnce(t, func(t *testing.T, p plan) { test(t, p, nodes) })
		})
	}
}

func stormOf(t *testing.T, l *lab, addresses int) *storm {
	t.Helper()
	s := &storm{lab: l}
	for i := range addresses {
		s.addresses = append(s.addresses, s.host(100+i))
	}
	s.router = s.gateway(t)
	for _, n := range s.nodes {
		n.startPulse()
		n.startAgent()
		n.say(s.spread(n))
	}
	s.expectAllHeard(t)
	s.expectRanked(t, "at first")
	s.asking = s.askingFor(t, s.addresses...)
	return s
}

// expectAllHeard waits until all nodes hear each other: they count as alive before that, and one that was
// never heard cannot fall silent.
func (s *storm) expectAllHeard(t *testing.T) {
	t.Helper()
	all := fmt.Sprintf("\nfairlead_pulse_nodes_heard %d\n", len(s.nodes)-1)
	for _, n := range s.nodes {
		for deadline := time.Now().Add(soon); !strings.Contains(get(t, n, "/metrics"), all); {
			if time.Now().After(deadline) {
				t.Fatalf("%s does not hear all others", n.name)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// spread is the table of a node with the addresses of the storm.
func (s *storm) spread(n *node) api.Table {
	t := s.table(n)
	t.Claims = map[netip.Addr]desired.Candidacy{}
	for _, a := range s.addresses {
		t.Claims[a] = desired.Candidacy{Candidates: s.ranked(a)}
	}
	return t
}

func (s *storm) ranked(a netip.Addr) []string {
	var names []string
	for _, n := range s.nodes {
		names = append(names, n.name)
	}
	return election.Rank(a, names)
}

// expectRanked waits until each address is answered for by its first candidate, and by no other node.
func (s *storm) expectRanked(t *testing.T, when string) {
	t.Helper()
	for _, n := range s.nodes {
		n.until(when+": all nodes alive, and each with its own", func(state api.State) bool {
			if !state.Settled || len(state.Alive) != len(s.nodes) {
				return false
			}
			for _, a := range s.addresses {
				if _, has := state.Owned[a]; has != (s.ranked(a)[0] == n.name) {
					return false
				}
			}
			return true
		})
	}
}

// plugs are those of some nodes.
func (s *storm) plugs(nodes ...int) []string {
	var all []string
	for _, i := range nodes {
		all = append(all, s.nodes[i].plug)
	}
	return all
}

// lose has the segment lose a part of all frames among the nodes and the gateway. What the client
// asks and hears is not lost, so that what it finds is what is so.
func (s *storm) lose(t *testing.T, percent int) {
	t.Helper()
	all := []string{s.router}
	for _, n := range s.nodes {
		all = append(all, n.plug)
	}
	among := "{ " + strings.Join(all, ", ") + " }"
	s.switches(t, fmt.Sprintf("add table bridge cut; add chain bridge cut forward { type filter hook forward priority 0; }; "+
		"add rule bridge cut forward iifname %s oifname %s numgen random mod 100 < %d drop", among, among, percent))
}

// spell is for how long one node answered for an address.
type spell struct {
	by          string
	first, last time.Time
}

// seen is what the client found.
type seen struct {
	moves  int           // to another node
	double time.Duration // two answered for so long at most
	nobody time.Duration // nobody did for so long at most, while the client heard of other addresses
}

// found says what was found since anew was called.
func (a *asking) found() seen {
	a.mu.Lock()
	defer a.mu.Unlock()
	type answer struct {
		at   time.Time
		idle time.Duration // for so long nothing at all had been heard by then
	}
	spells, answered := map[netip.Addr][]spell{}, map[netip.Addr]answer{}
	var s seen
	var idle time.Duration
	for i, of := range a.of {
		at := a.answered[i]
		if i > 0 {
			// Nothing of any address, of several nodes: it is the client that did not run.
			if pause := at.Sub(a.answered[i-1]); pause > 10*every {
				idle += pause
			}
		}
		if before, ok := answered[of]; ok {
			s.nobody = max(s.nobody, at.Sub(before.at)-(idle-before.idle))
		}
		answered[of] = answer{at, idle}
		all := spells[of]
		// One that was silent for some questions had stopped.
		mine := slices.IndexFunc(all, func(p spell) bool { return p.by == a.by[i] && at.Sub(p.last) <= 4*a.pause+10*time.Millisecond })
		if mine < 0 {
			spells[of] = append(all, spell{a.by[i], at, at})
			continue
		}
		all[mine].last = at
	}
	for _, all := range spells {
		for i, one := range all {
			if i > 0 && one.by != all[i-1].by { // or the client was busy
				s.moves++
			}
			for _, other := range all[:i] {
				if one.by != other.by {
					s.double = max(s.double, one.overlap(other))
				}
			}
		}
	}
	return s
}

// overlap is for how long both lasted; less than 0: by so much one came after the other.
func (p spell) overlap(other spell) time.Duration {
	return min(p.last.Sub(p.first), p.last.Sub(other.first), other.last.Sub(p.first), other.last.Sub(other.first))
}

// TestThirtyPercentOfFramesAreLost among three, four and five nodes and their gateway, hellos, ARP and
// all. They learn to wait longer; nothing moves any more then.
func TestThirtyPercentOfFramesAreLost(t *testing.T) { inStorms(t, thirtyPercent) }

func thirtyPercent(t *testing.T, p plan, nodes int) {
	const learning = 10 * time.Second
	s := newStorm(t, p, nodes, 6)
	s.asking.anew()
	s.lose(t, 30)
	time.Sleep(learning)
	before := s.asking.found()
	s.asking.anew()
	time.Sleep(weatherFor(t))
	then := s.asking.found()
	t.Logf("%d nodes, in the first %v: %+v; in %v after that: %+v", nodes, learning, before, weatherFor(t), then)
	if before.double > longestDetection || then.double > longestDetection {
		t.Errorf("two answered for %v, and %v", before.double, then.double)
	}
	if most := len(s.addresses); then.moves > most {
		t.Errorf("%d addresses moved %d times, once each is allowed", most, then.moves)
	}
	s.heal(t)
	s.expectRanked(t, "after the loss")
	s.asking.anew()
	time.Sleep(2 * time.Second)
	if calm := s.asking.found(); calm.moves > 0 || calm.double > 0 {
		t.Errorf("after the loss: %+v", calm)
	}
}

// TestFramesAreLostInOneDirection between two of three, four and five nodes: what each of them sends
// does not reach the next one, hellos and ARP alike.
func TestFramesAreLostInOneDirection(t *testing.T) { inStorms(t, oneDirection) }

func oneDirection(t *testing.T, p plan, nodes int) {
	const lasts = 5 * time.Second
	s := newStorm(t, p, nodes, 6)
	for from := range nodes {
		to := (from + 1) % nodes
		s.asking.anew()
		s.cut(t, s.plugs(from), s.plugs(to))
		s.nodes[to].until("does not hear it", func(state api.State) bool {
			return !slices.Contains(state.Alive, s.nodes[from].name)
		})
		time.Sleep(lasts)
		while := s.asking.found()
		s.asking.anew()
		s.heal(t)
		s.expectRanked(t, "healed")
		after := s.asking.found()
		t.Logf("%d does not reach %d: %+v; healed: %+v", from+1, to+1, while, after)
		if longest := max(while.double, after.double); longest > longestDetection {
			t.Errorf("%d does not reach %d: two answered for %v", from+1, to+1, longest)
		}
		if most := len(s.addresses); while.moves > most || after.moves > most {
			t.Errorf("%d does not reach %d: %d addresses moved %d times, and back %d times", from+1, to+1, most, while.moves, after.moves)
		}
	}
}

// TestThreeOfFiveStandStill: most nodes are stopped for two seconds, in turns, as by a machine that
// is moved. The others take over, and nobody takes its own pause for the death of others.
func TestThreeOfFiveStandStill(t *testing.T) {
	t.Parallel()
	inBothAtOnce(t, threeStandStill)
}

func threeStandStill(t *testing.T, p plan) {
	const stopped = 2 * time.Second
	s := newStorm(t, p, 5, 6)
	s.asking.anew()
	for first := range 2 {
		still := []int{first, first + 1, first + 2}
		for _, i := range still {
			if err := s.nodes[i].process.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(stopped)
		for _, i := range still {
			if err := s.nodes[i].process.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
		s.expectRanked(t, "all go on")
	}
	all := s.asking.found()
	t.Logf("three of five stood still for %v, twice: %+v", stopped, all)
	if all.double > longestDetection {
		t.Errorf("two answered for %v", all.double)
	}
	if all.nobody > longestDetection {
		t.Errorf("nobody answered for %v", all.nobody)
	}
	if most := 2 * 2 * len(s.addresses); all.moves > most {
		t.Errorf("%d addresses moved %d times", len(s.addresses), all.moves)
	}
}
