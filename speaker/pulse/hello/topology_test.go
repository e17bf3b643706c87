package hello

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hops is what it takes, after a watcher noticed a death, until all know: the objection, and
// some hops that wait for each other.
const hops = testInterval/4 + 5*(testInterval/10+testDelay)

// startedMany gives a world in which nodes watch some others only.
func startedMany(t testing.TB, size int, seed uint64) *world {
	t.Helper()
	w := newWorld(size, seed)
	for i := range size {
		w.start(i)
	}
	w.run(4 * testDetect)
	w.expectAlive(t, "after the start", upTo(size))
	for _, h := range w.hosts {
		if !h.state.settled {
			t.Fatalf("%s is not settled", h.name)
		}
	}
	return w
}

func upTo(n int) []int {
	var all []int
	for i := range n {
		all = append(all, i)
	}
	return all
}

// failer is of a test or of one of its histories.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// expectAlive fails the test unless each of those sees exactly those.
func (w *world) expectAlive(t failer, when string, those []int) {
	t.Helper()
	wrong := 0
	for _, i := range those {
		for j := range w.hosts {
			got, want := w.alive(i, j), slices.Contains(those, j)
			if got != want {
				if wrong++; wrong < 5 {
					t.Errorf("%s: node-%d counts node-%d as alive: %v, want %v", when, i, j, got, want)
				}
			}
		}
	}
	if wrong > 0 {
		t.Fatalf("%s: %d views are wrong", when, wrong)
	}
}

// expectAllSee fails the test unless each of those sees all of those, and whoever else.
func (w *world) expectAllSee(t failer, when string, those []int) {
	t.Helper()
	for _, i := range those {
		for _, j := range those {
			if !w.alive(i, j) {
				t.Fatalf("%s: node-%d counts node-%d as dead:\n%s", when, i, j, w.hosts[i].log.String())
			}
		}
	}
}

func (w *world) expectNoDeaths(t failer, when string) {
	t.Helper()
	for _, h := range w.hosts {
		if h.state != nil && h.state.figures().Deaths > 0 {
			t.Fatalf("%s: %s saw %d deaths:\n%s", when, h.name, h.state.figures().Deaths, h.log.String())
		}
	}
}

// watchers are the hosts that watch one.
func (w *world) watchers(of int) (found []int) {
	for i, h := range w.hosts {
		if p := h.state.peers[w.hosts[of].name]; p != nil && p.watched {
			found = append(found, i)
		}
	}
	return found
}

func TestEachNodeWatchesSome(t *testing.T) {
	w := startedMany(t, 60, 1)
	for i, h := range w.hosts {
		watches := h.state.figures().Watched
		if watchers := w.watchers(i); watches < rings || watches > 2*rings || len(watchers) != watches {
			t.Errorf("node-%d watches %d and is watched by %v", i, watches, watchers)
		}
	}
	w.run(testDetect)
	before := w.hosts[0].state.figures().Received
	w.run(10 * testInterval)
	if got := w.hosts[0].state.figures().Received - before; got > 2*rings*14 {
		t.Errorf("%d datagrams came within ten intervals", got)
	}
}

// TestADeathIsKnownToAll within a detection time and a few hops, and not before.
func TestADeathIsKnownToAll(t *testing.T) {
	for seed := range uint64(3) {
		w := startedMany(t, 40, seed)
		w.run(testInterval * time.Duration(seed) / 5)
		w.hosts[7].state = nil
		w.run((testMultiplier - 1) * testInterval)
		for i := range w.hosts {
			if i != 7 && !w.alive(i, 7) {
				t.Fatalf("seed %d: node-%d buried it too soon", seed, i)
			}
		}
		w.run(testInterval + testDelay + hops)
		w.expectAlive(t, "after a death", slices.Delete(upTo(40), 7, 8))
		if silent := w.hosts[0].state.view(w.now).Silent; !slices.Equal(silent, []string{"node-7"}) {
			t.Errorf("%v count as silent", silent)
		}
		w.run(10 * time.Second)
		w.expectAlive(t, "some time after a death", slices.Delete(upTo(40), 7, 8))
		w.start(7)
		w.run(2*testInterval + 4*testDelay + hops)
		w.expectAlive(t, "back", upTo(40))
	}
}

// TestBrokenWiresAreNoDeath: one or more of those that watch a node do not hear it, and the
// others do. All believe those, for as long as it lives.
func TestBrokenWiresAreNoDeath(t *testing.T) {
	for broken := 1; broken <= 4; broken++ {
		w := startedMany(t, 40, uint64(broken))
		for _, i := range w.watchers(7)[:broken] {
			w.cut[[2]int{7, i}] = true
			if broken%2 == 0 {
				w.cut[[2]int{i, 7}] = true
			}
		}
		for range 100 {
			w.run(100 * time.Millisecond)
			w.expectNoDeaths(t, fmt.Sprint(broken, " broken wires"))
		}
		w.expectAlive(t, "with broken wires", upTo(40))
		w.hosts[7].state = nil
		w.run(testDetect + testDelay + hops + testInterval)
		w.expectAlive(t, "died at last", slices.Delete(upTo(40), 7, 8))
	}
}

// TestPartitionOfMany: each side knows that the other is gone, however small it is, and both
// know when it is back.
func TestPartitionOfMany(t *testing.T) {
	for _, left := range []int{1, 2, 3, 10, 20} {
		w := startedMany(t, 40, uint64(left))
		for i := range left {
			for j := left; j < 40; j++ {
				w.cut[[2]int{i, j}], w.cut[[2]int{j, i}] = true, true
			}
		}
		w.run(2*testDetect + testInterval + 2*hops)
		for i := range left {
			for j := left; j < 40; j++ {
				if w.alive(i, j) || w.alive(j, i) {
					t.Fatalf("%d on the left: node-%d and node-%d count as alive to each other", left, i, j)
				}
			}
		}
		w.expectAlive(t, fmt.Sprint(left, " on the left, the right"), upTo(40)[left:])
		w.run(4 * testInterval) // of the left, one may not have watched another until then
		w.expectAlive(t, fmt.Sprint(left, " on the left"), upTo(40)[:left])
		w.run(10 * time.Second)
		w.expectAlive(t, fmt.Sprint(left, " on the left, later"), upTo(40)[left:])
		clear(w.cut)
		w.run(4*testInterval + 2*hops)
		w.expectAlive(t, fmt.Sprint(left, " healed"), upTo(40))
	}
}

// TestOneWay: those who are not heard see that, and to whom they are dead.
func TestOneWay(t *testing.T) {
	w := startedMany(t, 40, 1)
	for i := range 10 {
		for j := 10; j < 40; j++ {
			w.cut[[2]int{i, j}] = true // nothing of the first ten gets to the others
		}
	}
	w.run(2*testDetect + testInterval + 2*hops)
	w.expectAlive(t, "the others", upTo(40)[10:])
	for i := range 10 {
		v := w.hosts[i].state.view(w.now)
		for j := range 40 {
			m := v.Alive[w.hosts[j].name]
			switch {
			case j == i:
			case m.Deaf != (j >= 10):
				t.Fatalf("node-%d sees node-%d as %+v", i, j, m)
			case m.Deaf && (len(m.Silent) != 10 || !m.Silent["node-0"] || !m.Silent[w.hosts[i].name]):
				t.Fatalf("node-%d thinks that node-%d does not hear %v", i, j, m.Silent)
			}
		}
	}
	clear(w.cut)
	w.run(4*testInterval + 2*hops)
	w.expectAlive(t, "healed", upTo(40))
	for i := range 40 {
		for node, m := range w.hosts[i].state.view(w.now).Alive {
			if m.Deaf {
				t.Fatalf("healed, and node-%d thinks that %s does not hear it", i, node)
			}
		}
	}
}

// TestADeafNode hears nobody and is heard: its ears are at fault, and nobody follows it.
func TestADeafNode(t *testing.T) {
	w := startedMany(t, 40, 1)
	for j := 1; j < 40; j++ {
		w.cut[[2]int{j, 0}] = true
	}
	w.run(4 * testDetect)
	for i := 1; i < 40; i++ {
		v := w.hosts[i].state.view(w.now)
		if len(v.Alive) != 40 || v.Alive["node-0"].Deaf {
			t.Fatalf("node-%d sees %d alive, and node-0 deaf: %t", i, len(v.Alive), v.Alive["node-0"].Deaf)
		}
	}
	if n := len(w.hosts[0].state.view(w.now).Alive); n != 1 {
		t.Errorf("the deaf node sees %d alive", n)
	}
}

// TestWordsAreKnownToAll: what a node says of itself is known to all at once.
func TestWordsAreKnownToAll(t *testing.T) {
	w := startedMany(t, 40, 1)
	broken := netip.MustParseAddr("192.0.2.9")
	serve := func(a netip.Addr) (n int) {
		for _, h := range w.hosts {
			if h.state != nil && h.state.view(w.now).CanServe("node-7", a) {
				n++
			}
		}
		return n
	}
	w.set(7, func(want *Wanted) { want.Unable = []netip.Addr{broken} })
	w.run(hops)
	if serve(broken) != 0 || serve(vip) != 40 {
		t.Fatalf("%d think that it can serve what it cannot, %d what it can", serve(broken), serve(vip))
	}
	w.set(7, func(want *Wanted) { want.Unable = nil })
	w.run(hops)
	if serve(broken) != 40 {
		t.Fatalf("%d think that it can serve what it can again", serve(broken))
	}
	w.set(7, func(want *Wanted) { want.Leaving = true })
	w.run(hops)
	if serve(vip) != 0 {
		t.Fatalf("%d think that a leaving node can serve", serve(vip))
	}
	w.hosts[7].state = nil
	w.run(testDetect + testInterval + hops)
	w.expectAlive(t, "left", slices.Delete(upTo(40), 7, 8))
	w.expectNoDeaths(t, "left")
}

// TestARestartMovesNothing: a restart moves nothing, for all.
func TestARestartMovesNothing(t *testing.T) {
	w := startedMany(t, 40, 1)
	goodbye := func(i int, hold time.Duration) {
		for range goodbyes {
			w.goodbye(i, hold)
			w.run(goodbyeGap)
		}
		w.hosts[i].state = nil
	}
	serves := func(when string, of int, want bool) {
		t.Helper()
		for _, h := range w.hosts {
			if h.state != nil && h != w.hosts[of] && h.state.view(w.now).CanServe(w.hosts[of].name, vip) != want {
				t.Fatalf("%s: %s thinks that node-%d can serve: %t", when, h.name, of, !want)
			}
		}
	}
	goodbye(7, 10*time.Second)
	w.run(9 * time.Second)
	serves("within the hold", 7, true)
	w.hosts[7].want.Serving = false
	w.start(7)
	w.run(500 * time.Millisecond)
	serves("not ready yet", 7, true)
	w.set(7, func(want *Wanted) { want.Serving = true })
	w.run(10 * time.Second)
	serves("back", 7, true)
	w.expectNoDeaths(t, "restarted")

	goodbye(7, 3*time.Second)
	w.run(2900 * time.Millisecond)
	serves("within a short hold", 7, true)
	w.run(200*time.Millisecond + hops)
	serves("after the hold", 7, false)

	w.start(7)
	w.run(testDetect)
	goodbye(7, 0)
	w.run(hops)
	serves("gone for good", 7, false)
}

// TestAllRestartAtOnce, as when a DaemonSet is replaced carelessly: nobody dies.
func TestAllRestartAtOnce(t *testing.T) {
	w := startedMany(t, 40, 1)
	for i := range w.hosts {
		if i%2 == 0 {
			w.goodbye(i, 10*time.Second)
			w.hosts[i].state = nil
		}
	}
	w.run(3 * time.Second)
	for i := range w.hosts {
		if i%2 == 0 {
			w.start(i)
		}
	}
	w.run(15 * time.Second)
	w.expectNoDeaths(t, "restarted")
	w.expectAlive(t, "restarted", upTo(40))
}

// TestReplayedGossip: neither recorded hellos nor recorded gossip revive a node or kill one.
func TestReplayedGossip(t *testing.T) {
	w := startedMany(t, 20, 1)
	type caught struct {
		to       int
		datagram []byte
	}
	var recording []caught
	w.arrived = func(_, to int, datagram []byte) { recording = append(recording, caught{to, slices.Clone(datagram)}) }
	w.hosts[7].state = nil
	w.run(2 * testDetect)
	w.start(7)
	w.set(3, func(want *Wanted) { want.Unable = []netip.Addr{vip} })
	w.run(2 * testDetect)
	w.hosts[9].state = nil
	w.run(2 * testDetect)
	w.arrived = func(int, int, []byte) {}
	living := slices.Delete(upTo(20), 9, 10)
	w.expectAlive(t, "before", living)
	before := w.hosts[0].state.figures().Rejected[ReasonReplayed]
	for _, c := range recording {
		if w.hosts[c.to].state != nil {
			w.send(c.to, w.hosts[c.to].state.hear(w.now, c.datagram, attacker))
		}
	}
	for range 20 {
		w.run(testInterval / 10)
		w.expectAlive(t, "replayed", living)
	}
	if got := w.hosts[0].state.figures().Rejected[ReasonReplayed]; got == before {
		t.Error("no replay was counted")
	}
	forged := seal(datagramOf(versionGossip, 1<<60, gossip{Node: "node-1", Incarnation: 7}), otherKey)
	w.hosts[0].state.hear(w.now, forged, attacker)
	if w.hosts[0].state.figures().Rejected[ReasonMAC] != 1 {
		t.Error("a forged datagram was not counted")
	}
}

// TestLossyMeshOfMany: a tenth of all datagrams is lost for a minute, and nobody dies of it; at
// three tenths what nodes say still gets everywhere.
func TestLossyMeshOfMany(t *testing.T) {
	w := startedMany(t, 40, 3)
	w.lose = func(int, int) bool { return w.random.IntN(10) == 0 }
	w.run(time.Minute)
	w.expectNoDeaths(t, "a tenth is lost")
	w.lose = func(int, int) bool { return w.random.IntN(10) < 3 }
	w.run(10 * time.Second)
	w.set(7, func(want *Wanted) { want.Unable = []netip.Addr{vip} })
	w.run(2 * time.Second)
	for i, h := range w.hosts {
		if h.state.view(w.now).CanServe("node-7", vip) {
			t.Errorf("node-%d has not heard of it", i)
		}
	}
}

// TestHistoriesOfMany: whatever happens once all have heard of each other, in the end all agree
// with the truth. Before, who was never heard is alive while Kubernetes says so.
func TestHistoriesOfMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, 16).Draw(t, "nodes")
		w := newWorld(size, rapid.Uint64().Draw(t, "seed"))
		for i := range size {
			w.start(i)
		}
		w.stepped = func() {
			for _, h := range w.hosts {
				h.expectJudged(t)
			}
		}
		w.run(time.Second)
		node := rapid.IntRange(0, size-1)
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) {
				w.run(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
			},
			"crash": func(t *rapid.T) { w.hosts[node.Draw(t, "node")].state = nil },
			"start": func(t *rapid.T) {
				if i := node.Draw(t, "node"); w.hosts[i].state == nil {
					w.start(i)
				}
			},
			"wire": func(t *rapid.T) {
				w.cut[[2]int{node.Draw(t, "from"), node.Draw(t, "to")}] = rapid.Bool().Draw(t, "cut")
			},
			"loss": func(t *rapid.T) {
				percent := rapid.IntRange(0, 40).Draw(t, "percent")
				w.lose = func(int, int) bool { return w.random.IntN(100) < percent }
			},
		})
		clear(w.cut)
		w.lose = func(int, int) bool { return false }
		w.run(longest + 10*time.Second)
		var running []int
		for i, h := range w.hosts {
			if h.state != nil {
				running = append(running, i)
			}
		}
		w.expectAlive(t, "in the end", running)
	})
}

// expectJudged fails the test unless what was found from one record after another is what is found
// from all of them.
func (h *host) expectJudged(t failer) {
	t.Helper()
	if h.state == nil || h.state.mesh.whole {
		return
	}
	type found struct{ reached, hears, suspected bool }
	find := func() map[string]found {
		all := map[string]found{}
		for _, p := range h.state.mesh.order {
			all[p.node] = found{p.there.found, p.back.found, p.isSuspected()}
		}
		return all
	}
	before := find()
	h.state.reach()
	h.state.findDeaf(h.state.mesh.heard)
	for node, now := range find() {
		if before[node] != now {
			t.Fatalf("%s of %s: %+v by its records one by one, and %+v by all of them:\n%s", h.name, node, before[node], now, h.log.String())
		}
	}
}
