package hello

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// longest is for how long a silence is waited for at most.
const longest = most * testInterval

// watch compares what the hosts of a world believe with what really arrived.
type watch struct {
	*rapid.T
	w     *world
	asked map[int]map[uint64]time.Time // by host: its open nonces, and since when
	// By receiver and sender: the boot that has answered an open nonce and was
	// not buried since, when its last hello arrived, and since when the two
	// could exchange everything.
	proven    map[[2]int]uint64
	arrived   map[[2]int]time.Time
	connected map[[2]int]time.Time
	holds     map[int]time.Time // by sender: until when it asked to be counted, at most
	wasAlive  map[[2]int]bool
	heard     map[[2]int]bool  // by itself
	disturbed bool             // something was late, lost, cut off or stopped
	recorded  map[int][][]byte // by receiver: what it has heard already
}

func newWatch(t *rapid.T, w *world) *watch {
	c := &watch{
		T: t, w: w,
		asked: map[int]map[uint64]time.Time{}, proven: map[[2]int]uint64{},
		arrived: map[[2]int]time.Time{}, connected: map[[2]int]time.Time{},
		holds: map[int]time.Time{}, wasAlive: map[[2]int]bool{}, heard: map[[2]int]bool{}, recorded: map[int][][]byte{},
	}
	w.sent = func(from int, datagram []byte) {
		_, body, _ := open(datagram, version, ringOfKeys(testKey)) // nothing of gossip
		h, _ := decode(body)
		if c.asked[from] == nil {
			c.asked[from] = map[uint64]time.Time{}
		}
		if _, open := c.asked[from][h.Ask]; h.Ask != 0 && !open {
			c.asked[from][h.Ask] = w.now
		}
	}
	w.arrived = func(from, to int, datagram []byte) {
		pair := [2]int{to, from}
		c.recorded[to] = append(c.recorded[to], bytes.Clone(datagram))
		_, body, reason := open(datagram, version, ringOfKeys(testKey))
		h, ok := decode(body)
		if reason != "" || !ok {
			return // gossip, which proves nothing
		}
		if asked, open := c.asked[to][h.Echo]; open && w.now.Sub(asked) < longest {
			c.proven[pair] = h.Incarnation
			delete(c.asked[to], h.Echo)
		}
		if c.proven[pair] == h.Incarnation {
			c.arrived[pair] = w.now
		}
	}
	w.stepped = c.check
	return c
}

// connect notes from when two hosts could exchange everything; a change of
// either process or of the wire between them begins anew.
func (c *watch) connect() {
	for i, a := range c.w.hosts {
		for j, b := range c.w.hosts {
			pair := [2]int{i, j}
			up := a.state != nil && b.state != nil && !c.w.cut[pair] && !c.w.cut[[2]int{j, i}]
			if _, was := c.connected[pair]; !up {
				delete(c.connected, pair)
			} else if !was {
				c.connected[pair] = c.w.now
			}
		}
	}
}

func (c *watch) check() {
	const slack = time.Microsecond
	w := c.w
	for i, at := range w.hosts {
		if at.state == nil {
			continue
		}
		for j := range w.hosts {
			if i == j {
				continue
			}
			pair := [2]int{i, j}
			silence := w.now.Sub(c.arrived[pair])
			alive, hears := w.alive(i, j), at.state.hears(w.hosts[j].name)
			if (c.wasAlive[pair] && !alive || c.heard[pair] && !hears) && silence < (testMultiplier-1)*testInterval {
				c.Fatalf("node-%d buried node-%d after %v of silence; hears it: %v", i, j, silence, hears)
			}
			waits := at.state.peers[w.hosts[j].name].detect
			if waits < testDetect || waits > longest || waits > testDetect && !c.disturbed {
				c.Fatalf("node-%d waits for %v of silence of node-%d", i, waits, j)
			}
			if (hears || alive && len(w.hosts) == 2) && silence > waits+testInterval && w.now.After(c.holds[j].Add(slack)) {
				c.Fatalf("node-%d counts node-%d as alive after %v of silence", i, j, silence)
			}
			since, connected := c.connected[pair]
			if (!alive || !hears) && connected && w.now.Sub(since) > 4*testInterval+4*testDelay {
				c.Fatalf("node-%d does not know node-%d, with which it could talk for %v", i, j, w.now.Sub(since))
			}
			if c.heard[pair] && !hears {
				delete(c.proven, pair)
			}
			c.wasAlive[pair], c.heard[pair] = alive, hears
		}
	}
}

func (c *watch) stop(i int) {
	c.disturbed = true
	c.w.hosts[i].state = nil
	delete(c.asked, i)
	for j := range c.w.hosts {
		delete(c.wasAlive, [2]int{i, j})
		delete(c.heard, [2]int{i, j})
		delete(c.proven, [2]int{i, j})
	}
	c.connect()
}

// hears tells whether a machine hears a node that it watches, or waits for its next hello.
func (m *machine) hears(node string) bool {
	p := m.peers[node]
	return p != nil && p.watched && p.link == linkHeard
}

// TestHistories: whatever processes, wires, busy machines and attackers do, a node that is watched is
// silent after the detection time, not before (Multiplier-1 intervals) and
// not an interval later, and heard again soon after it can be. None counts as dead that was heard in
// that time, and none of two as alive that was not. The detection time is
// bounded, and the configured one while nothing is late or lost.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, 4).Draw(t, "nodes")
		w := newWorld(size, rapid.Uint64().Draw(t, "seed"))
		c := newWatch(t, w)
		node := rapid.IntRange(0, size-1)
		for i := range size {
			w.start(i)
		}
		c.connect()
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) {
				w.run(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
			},
			"crash": func(t *rapid.T) {
				c.stop(node.Draw(t, "node"))
			},
			"restart": func(t *rapid.T) {
				i := node.Draw(t, "node")
				h := w.hosts[i]
				if h.state != nil {
					hold := time.Duration(rapid.IntRange(1, 20_000).Draw(t, "hold ms")) * time.Millisecond
					h.state.part(w.now, hold)
					w.send(i, h.state.hellos(w.now))
					if until := w.now.Add(testDelay + min(hold, MaxHold)); until.After(c.holds[i]) {
						c.holds[i] = until
					}
				}
				c.stop(i)
			},
			"start": func(t *rapid.T) {
				if i := node.Draw(t, "node"); w.hosts[i].state == nil {
					w.start(i)
					c.connect()
				}
			},
			"late": func(t *rapid.T) {
				c.disturbed = true
				// Less than what is forgiven: see resume.
				late := rapid.Int64Range(0, int64(testInterval*9/10)).Draw(t, "late")
				w.hosts[node.Draw(t, "node")].late = func() time.Duration { return time.Duration(w.random.Int64N(late + 1)) }
			},
			"wire": func(t *rapid.T) {
				c.disturbed = true
				w.cut[[2]int{node.Draw(t, "from"), node.Draw(t, "to")}] = rapid.Bool().Draw(t, "cut")
				c.connect()
			},
			"replay": func(t *rapid.T) {
				to := node.Draw(t, "to")
				if n := len(c.recorded[to]); n > 0 && w.hosts[to].state != nil {
					datagram := c.recorded[to][rapid.IntRange(0, n-1).Draw(t, "datagram")]
					w.send(to, w.hosts[to].state.hear(w.now, datagram, attacker))
				}
			},
			"forge": func(t *rapid.T) {
				to := node.Draw(t, "to")
				h := drawHello(t, w.hosts[node.Draw(t, "as")].name, len(w.hosts), 10, false)
				if w.hosts[to].state != nil {
					w.send(to, w.hosts[to].state.hear(w.now, seal(datagramOf(version, h.Seq, h), otherKey), attacker))
				}
			},
			"": func(*rapid.T) { c.check() },
		})
	})
}

// TestOneLostHelloIsNoDeath holds for every hello of a long run: whichever is
// lost, and however the jitter falls, nobody dies of it.
func TestOneLostHelloIsNoDeath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(2, rapid.Uint64().Draw(t, "seed"))
		w.start(0)
		w.start(1)
		w.run(2 * testDetect)
		last := map[int]bool{}
		w.lose = func(from, _ int) bool {
			last[from] = !last[from] && w.random.IntN(2) == 0 // never two in a row
			return last[from]
		}
		w.run(20 * testDetect)
		for i, h := range w.hosts {
			if s := h.state.figures(); s.Deaths > 0 || !w.alive(i, 1-i) {
				t.Fatalf("%s saw %d deaths", h.name, s.Deaths)
			}
		}
	})
}

// TestLossyMesh: a tenth of all datagrams is lost, and nobody dies of it for a
// minute, as it takes five in a row: one in 100,000.
func TestLossyMesh(t *testing.T) {
	w := started(t, 3, 11)
	lost := 0
	w.lose = func(int, int) bool {
		if w.random.IntN(10) == 0 {
			lost++
			return true
		}
		return false
	}
	w.run(time.Minute)
	if lost < 200 {
		t.Fatalf("only %d datagrams were lost", lost)
	}
	w.expect(t, "after a minute of loss", 0, 1, 2)
	for _, h := range w.hosts {
		if n := h.state.figures().Deaths; n > 0 {
			t.Errorf("%s saw %d deaths", h.name, n)
		}
	}
}

func TestPartition(t *testing.T) {
	w := started(t, 5, 3)
	left, right := []int{0, 1}, []int{2, 3, 4}
	for _, i := range left {
		for _, j := range right {
			w.cut[[2]int{i, j}], w.cut[[2]int{j, i}] = true, true
		}
	}
	w.run((testMultiplier + 1) * testInterval)
	for i := range w.hosts {
		for j := range w.hosts {
			if got, want := w.alive(i, j), slices.Contains(left, i) == slices.Contains(left, j); got != want {
				t.Errorf("parted: node-%d counts node-%d as alive: %v, want %v", i, j, got, want)
			}
		}
	}
	clear(w.cut)
	w.run(2*testInterval + 4*testDelay)
	w.expect(t, "healed", 0, 1, 2, 3, 4)
}

// TestScale: two hundred nodes, or a hundred with -short, hear each other, lose ten and find them again.
func TestScale(t *testing.T) {
	const dead = 10
	size := 200
	if testing.Short() {
		size = 100
	}
	interval := time.Duration(size-1) * each // between so many
	w := newWorld(size, 5)
	for i := range size {
		w.start(i)
	}
	w.run(2 * interval)
	expect := func(when string, want int) {
		t.Helper()
		for _, h := range w.hosts {
			if h.state == nil {
				continue
			}
			if got := h.state.figures().Heard; got != want-1 {
				t.Fatalf("%s: %s hears %d nodes, want %d", when, h.name, got, want-1)
			}
		}
	}
	expect("after the start", size)
	for i := range dead {
		w.hosts[i].state = nil
	}
	w.run((testMultiplier + 1) * interval)
	expect(fmt.Sprintf("after %d nodes died", dead), size-dead)
	for i := range dead {
		w.start(i)
	}
	w.run(2*interval + 4*testDelay)
	expect("after they came back", size)
}

func BenchmarkHear(b *testing.B) {
	w := newWorld(2, 1)
	w.start(0)
	w.start(1)
	w.run(testDetect)
	sender, receiver := w.hosts[0].state, w.hosts[1].state
	for b.Loop() {
		receiver.hear(w.now, sender.hello(w.now, 0, 0)[0], attacker)
	}
}
