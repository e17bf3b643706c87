package linkcheck

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/pulse/hello"
)

const (
	every      = 50 * time.Millisecond
	multiplier = 3
	detection  = every * multiplier
	step       = 5 * time.Millisecond
)

// wireless is machines on one network, and the directions in which it passes nothing.
type wireless struct {
	now   time.Time
	nodes []*mep
	due   []time.Time
	dark  map[[2]int]bool
	loss  func() bool
	// all that was ever sent, by node, as somebody notes it who records.
	recorded map[int][]ccm
	paused   map[int]bool
}

func newWireless(nodes int) *wireless {
	w := &wireless{now: time.Unix(1000, 0), dark: map[[2]int]bool{}, recorded: map[int][]ccm{}, paused: map[int]bool{}, loss: func() bool { return false }}
	for i := range nodes {
		w.nodes = append(w.nodes, w.begin(i, uint64(i+1), true))
		w.due = append(w.due, w.now.Add(time.Duration(i)*7*time.Millisecond))
	}
	return w
}

func (w *wireless) begin(i int, boot uint64, early bool) *mep {
	return newMEP(w.now, fmt.Sprintf("node-%d", i), "eth1", every, multiplier, func() uint64 { boot += 1 << 40; return boot }, early)
}

func (w *wireless) run(d time.Duration, each func()) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(step) {
		for i, m := range w.nodes {
			if w.paused[i] {
				continue
			}
			if until := m.until(w.now); !until.IsZero() && !w.now.Before(until) {
				m.check(w.now)
			}
			if w.now.Before(w.due[i]) {
				continue
			}
			w.due[i] = w.now.Add(m.interval * 9 / 10)
			m.check(w.now)
			f := m.next(w.now)
			w.recorded[i] = append(w.recorded[i], f)
			for j, to := range w.nodes {
				if i != j && !w.dark[[2]int{i, j}] && !w.loss() && !w.paused[j] {
					to.hear(w.now, f)
				}
			}
		}
		if each != nil {
			each()
		}
	}
}

// cut takes the ways from and to a node.
func (w *wireless) cut(i int, out, in bool) {
	for j := range w.nodes {
		w.dark[[2]int{i, j}], w.dark[[2]int{j, i}] = out, in
	}
}

func (w *wireless) silent() (all []int) {
	for i, m := range w.nodes {
		if m.silent {
			all = append(all, i)
		}
	}
	return all
}

// Whatever direction is lost of the link of a node, that node knows within a detection time, or an interval
// more if only what it sends is lost; no other one is in doubt, and the nodes that it heard say so no more.
func TestALostLinkIsKnownToItsNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(3, 12).Draw(t, "nodes")
		w := newWireless(nodes)
		w.run(time.Second, nil)
		if s := w.silent(); len(s) > 0 {
			t.Fatalf("%v are silent while all works", s)
		}
		lost := rapid.IntRange(0, nodes-1).Draw(t, "lost")
		out := rapid.Bool().Draw(t, "out")
		in := !out || rapid.Bool().Draw(t, "in")
		w.cut(lost, out, in)
		most := w.now.Add(detection + step)
		if !in {
			most = most.Add(every)
		}
		w.run(detection+2*every, func() {
			if s := w.silent(); len(s) > 0 && !slices.Equal(s, []int{lost}) {
				t.Fatalf("%v are silent, %d is to be", s, lost)
			}
			if w.now.After(most) && !w.nodes[lost].silent {
				t.Fatalf("it does not know yet, after %v", detection+w.now.Sub(most))
			}
		})
		if !w.nodes[lost].silent || len(w.nodes[lost].heard) > 0 {
			t.Fatalf("it does not know after %v", detection+2*every)
		}
		for i, m := range w.nodes {
			if i != lost && slices.Contains(m.heard, hello.IDOf(w.nodes[lost].node)) {
				t.Fatalf("node %d says that it exchanges frames with it", i)
			}
			if i != lost && len(m.heard) == 0 {
				t.Fatalf("node %d hears nobody", i)
			}
		}
		clear(w.dark)
		w.run(steady/2, nil)
		if !w.nodes[lost].silent {
			t.Fatal("it trusts its link at once again")
		}
		w.run(steady, nil)
		if s := w.silent(); len(s) > 0 {
			t.Fatalf("%v are silent after all was mended", s)
		}
	})
}

// Who plays back what was sent proves nothing, whenever it was recorded, and does not keep
// what is sent now from being heard.
func TestRecordedFramesProveNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWireless(3)
		w.run(time.Second, nil)
		w.nodes[1] = w.begin(1, 99, true) // of which the boot is another one
		w.run(time.Second, nil)
		replay := func(to int) {
			from := (to + rapid.IntRange(1, 2).Draw(t, "from")) % 3
			all := w.recorded[from]
			w.nodes[to].hear(w.now, all[rapid.IntRange(0, len(all)-1).Draw(t, "which")])
		}
		w.run(time.Second, func() { replay(0); replay(1) })
		if s := w.silent(); len(s) > 0 {
			t.Fatalf("%v are silent for what is played back", s)
		}
		w.cut(0, true, true)
		// What is played back may be of this very moment, and late: that makes it be waited longer, and no more.
		w.run((most+2)*every, func() { replay(0) })
		if !w.nodes[0].silent {
			t.Fatalf("what is played back counts as heard; waits %v", w.nodes[0].wait(w.now))
		}
	})
}

// A process that stood still was not deaf.
func TestAPauseIsNoSilence(t *testing.T) {
	w := newWireless(3)
	w.run(time.Second, nil)
	for _, pause := range []time.Duration{detection, time.Second, 10 * time.Second} {
		w.paused[0] = true
		w.run(pause, nil)
		w.paused[0] = false
		w.run(every, func() {
			if w.nodes[0].silent {
				t.Fatalf("silent after a pause of %v", pause)
			}
		})
		w.run(time.Second, nil)
	}
	if s := w.silent(); len(s) > 0 {
		t.Fatalf("%v are silent", s)
	}
}

// 30 % of all frames are lost for ten minutes: a node learns to wait, and is in doubt a few times at most.
func TestLossIsLearned(t *testing.T) {
	for seed := range uint64(5) {
		w := newWireless(3)
		w.run(time.Second, nil)
		x := seed*2654435761 + 1
		w.loss = func() bool { x ^= x << 13; x ^= x >> 7; x ^= x << 17; return x%10 < 3 }
		doubts, before := 0, map[int]bool{}
		w.run(10*time.Minute, func() {
			for i, m := range w.nodes {
				if m.silent && !before[i] {
					doubts++
				}
				before[i] = m.silent
			}
		})
		t.Logf("%d doubts of 3 nodes in ten minutes", doubts)
		if doubts > 6 {
			t.Errorf("%d doubts", doubts)
		}
	}
}

// An interface that got its carrier back has told nobody of anything: it is silent until it is heard, and then
// at once is not.
func TestACarrierIsNoProof(t *testing.T) {
	w := newWireless(3)
	w.run(time.Second, nil)
	w.nodes[0].reset(w.now)
	if !w.nodes[0].silent {
		t.Fatal("heard before anything was")
	}
	w.cut(0, true, true)
	w.run(5*time.Second, func() {
		if !w.nodes[0].silent {
			t.Fatal("heard, and nothing passes")
		}
	})
	clear(w.dark)
	w.run(3*every, nil)
	if w.nodes[0].silent {
		t.Fatal("silent, and all passes")
	}
}

// Who begins is given time to be heard, and is silent if it is not.
func TestWhoBeginsIsGivenTime(t *testing.T) {
	w := newWireless(3)
	w.cut(0, true, true)
	w.run(2*detection, func() {
		if w.nodes[0].silent {
			t.Fatal("silent before it had time")
		}
	})
	w.run(2*detection, nil)
	if !w.nodes[0].silent {
		t.Fatal("not silent though it had time")
	}
}

// However many nodes there are, each proves what it hears; and a dead node is forgotten.
func TestManyNodes(t *testing.T) {
	w := newWireless(maxHeard + 20)
	w.run(2*time.Second, nil)
	if s := w.silent(); len(s) > 0 {
		t.Fatalf("%v are silent", s)
	}
	for _, o := range w.nodes[0].others {
		o.news = true
	}
	if n := len(w.nodes[0].next(w.now).Heard); n != maxHeard {
		t.Errorf("a frame tells of %d", n)
	}
	w.nodes, w.due = w.nodes[:3], w.due[:3]
	w.run(20*time.Second, nil)
	if n := len(w.nodes[0].others); n != 2 {
		t.Errorf("%d others are told of, 2 are there", n)
	}
}
