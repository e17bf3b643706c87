package hello

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func (w *world) deaths() (n int) {
	for _, h := range w.hosts {
		n += int(h.state.figures().Deaths)
	}
	return n
}

// waits is for how long one host waits for the hellos of another.
func (w *world) waits(at, of int) time.Duration {
	return w.hosts[at].state.peers[w.hosts[of].name].detect
}

// TestABusyNodeAsksForTime: as a node gets busier it asks the others to wait longer, so that
// none of them buries it; it asks for less when it has been in time for some minutes.
func TestABusyNodeAsksForTime(t *testing.T) {
	w := started(t, 3, 1)
	for most := 10 * time.Millisecond; most < 10*testInterval; most += most / 10 {
		w.hosts[0].late = func() time.Duration { return time.Duration(w.random.Int64N(int64(most))) }
		w.run(5 * time.Second)
	}
	if n := w.deaths(); n != 0 {
		t.Errorf("%d deaths while node-0 was busy", n)
	}
	asked := w.hosts[0].state.figures().Asked
	if asked != most*testInterval || w.waits(1, 0) != asked || w.waits(2, 0) != asked {
		t.Errorf("node-0 asks for %v; node-1 waits for %v and node-2 for %v", asked, w.waits(1, 0), w.waits(2, 0))
	}
	if got := w.waits(1, 2); got != testDetect {
		t.Errorf("node-1 waits %v for node-2, which is not busy", got)
	}
	if got := w.waits(0, 2); got != asked {
		t.Errorf("node-0, which is busy, waits %v for node-2, want %v", got, asked)
	}
	w.hosts[0].late = nil
	w.run(mindFor - time.Second)
	if got := w.hosts[0].state.figures().Asked; got != asked {
		t.Errorf("node-0 was busy less than %v ago and asks for %v", mindFor, got)
	}
	w.run(2 * time.Second)
	for i := range w.hosts {
		if s := w.hosts[i].state.figures(); s.Asked != testDetect || s.Late != 0 || s.Waits != testDetect {
			t.Errorf("node-%d was in time for minutes and asks for %v, late %v; it waits %v", i, s.Asked, s.Late, s.Waits)
		}
	}
	if log := w.hosts[0].log.String(); strings.Count(log, "leave late") > most || strings.Count(log, "leave sooner again") != 2 {
		t.Errorf("the log of node-0:\n%s", log)
	}
}

// TestALittleLatenessIsCovered: a node that is late again and again asks for no more than the usual silence while
// four times what it was late fits into that, beside the interval itself, and for an interval more when it does not.
func TestALittleLatenessIsCovered(t *testing.T) {
	const covered = (testDetect - testInterval) / safetyFactor
	for late, want := range map[time.Duration]time.Duration{
		covered:                        testDetect,
		covered + 2*time.Millisecond:   testDetect + testInterval,
		covered + testInterval/2:       testDetect + 2*testInterval,
		covered + testInterval:         testDetect + 4*testInterval,
		covered + most*testInterval/10: testDetect + 8*testInterval,
	} {
		w := started(t, 2, 1)
		w.hosts[0].late = func() time.Duration { return late }
		w.run(10 * stall)
		if asked := w.hosts[0].state.figures().Asked; asked != want || w.waits(1, 0) != want {
			t.Errorf("late by %v: node-0 asks for %v and node-1 waits %v, want %v", late, asked, w.waits(1, 0), want)
		}
	}
}

// TestOneStallIsWaitedForAgain: what kept a node back once may do so again, and costs no more than that. What did
// so twice may be worse the next time.
func TestOneStallIsWaitedForAgain(t *testing.T) {
	const covered = testDetect - testInterval
	for late, want := range map[time.Duration][2]time.Duration{
		covered - testInterval/4: {testDetect, testInterval + safetyFactor*covered - testInterval},
		covered:                  {testDetect + testInterval, testInterval + safetyFactor*covered},
		covered + testInterval:   {testDetect + 2*testInterval, longest},
	} {
		w := started(t, 2, 1)
		m, at := w.hosts[0].state, w.now
		stalls := func(pieces ...time.Duration) time.Duration {
			for _, by := range pieces {
				m.left(at)
				at = at.Add(testInterval + by)
				m.hellos(at)
			}
			return m.requestedTimeout()
		}
		once := stalls(late/2, late, late/3)
		at = at.Add(stall)
		if again := stalls(late); once != want[0] || again != want[1] {
			t.Errorf("late by %v: asks for %v, and then for %v, want %v", late, once, again, want)
		}
	}
}

// TestLossIsNoStall: two hellos that are lost in a row are loss, and more will be. As long without any is a stall.
func TestLossIsNoStall(t *testing.T) {
	for _, lost := range []bool{true, false} {
		w := started(t, 2, 1)
		sender, receiver := w.hosts[0].state, w.hosts[1].state
		at := w.now
		for range 3 {
			at = at.Add(testInterval)
			if hello := sender.hello(at, 0, 0)[0]; !lost || at.Sub(w.now) == 3*testInterval {
				receiver.hear(w.now.Add(3*testInterval), hello, netip.AddrPort{})
			}
		}
		if waits := w.waits(1, 0); waits > testDetect != lost {
			t.Errorf("lost: %v: waits %v", lost, waits)
		}
	}
}

// TestTheFirstTimeIsAWarning: a node that was never late and then is, by more than others
// wait, dies once in their eyes, and not again by as much.
func TestTheFirstTimeIsAWarning(t *testing.T) {
	w := started(t, 3, 1)
	const late = testDetect + 2*testInterval
	for range 20 {
		w.hosts[0].late = func() time.Duration { return late }
		w.run(late)
		w.hosts[0].late = nil
		w.run(5 * time.Second)
	}
	if n := w.deaths(); n != 2 {
		t.Errorf("%d deaths, want one in the eyes of each of the others", n)
	}
}

// TestALossyCable: 30 % of all datagrams are lost for ten minutes. Others wait longer for
// what is missing, so that a node dies at most once in the eyes of another.
func TestALossyCable(t *testing.T) {
	for seed := range uint64(4) {
		w := started(t, 3, seed)
		w.lose = func(int, int) bool { return w.random.IntN(10) < 3 }
		w.run(10 * time.Minute)
		for _, h := range w.hosts {
			if n := h.state.figures().Deaths; n > uint64(len(h.state.peers)) {
				t.Errorf("seed %d: %s saw %d deaths", seed, h.name, n)
			}
		}
		w.hosts[2].state = nil
		w.run(longest + testInterval)
		if w.alive(0, 2) || w.alive(1, 2) {
			t.Errorf("seed %d: a node that died is alive", seed)
		}
		w.lose = func(int, int) bool { return false }
		w.run(mindFor + longest)
		if got := w.waits(0, 1); got != testDetect {
			t.Errorf("seed %d: nothing is lost any more, and node-0 waits %v for node-1", seed, got)
		}
	}
}

// TestStopsTeachNothing: a node that was stopped for longer than others would ever wait, and
// one whose cable was out, are noticed as soon as ever the next time.
func TestStopsTeachNothing(t *testing.T) {
	w := started(t, 2, 1)
	stopped := w.hosts[0].state
	w.hosts[0].state = nil
	w.run(longest + testInterval)
	w.hosts[0].state = stopped
	w.wake(0)
	w.run(2 * testInterval)
	w.expect(t, "going on", 0, 1)
	w.cut[[2]int{0, 1}], w.cut[[2]int{1, 0}] = true, true
	w.run(longest + testInterval)
	clear(w.cut)
	w.run(2 * testInterval)
	w.expect(t, "plugged in again", 0, 1)
	for i := range w.hosts {
		if got := w.waits(i, 1-i); got != testDetect {
			t.Errorf("node-%d waits %v", i, got)
		}
	}
}

// TestIntervals: the worse what was seen, and the more is to be waited for, the longer it is waited, within bounds.
func TestIntervals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		multiplier := rapid.IntRange(3, 40).Draw(t, "multiplier")
		interval := time.Duration(rapid.IntRange(10, 1000).Draw(t, "interval ms")) * time.Millisecond
		once := time.Duration(rapid.IntRange(0, 3000).Draw(t, "once")) * time.Millisecond
		more := time.Duration(rapid.IntRange(-12000, 12000).Draw(t, "more")) * time.Millisecond
		silence := func(n int) time.Duration { return time.Duration(n) * interval }
		got := intervals(multiplier, interval, once, more)
		switch {
		case more <= 0 && once < silence(multiplier-2) && got != multiplier,
			got < multiplier || got > max(multiplier, most),
			got < max(multiplier, most) && (silence(got-multiplier) < more || silence(got) <= interval+once),
			intervals(multiplier, interval, once, more+time.Millisecond) < got,
			intervals(multiplier, interval, once+time.Millisecond, more) < got:
			t.Fatalf("%d intervals", got)
		}
	})
}

// TestLateness: the two worst stalls of the last minutes are remembered, whatever came before and after.
func TestLateness(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l lateness
		var all []late
		now := time.Unix(1_700_000_000, 0)
		for range rapid.IntRange(1, 50).Draw(t, "times") {
			now = now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "s")) * stall)
			by := time.Duration(rapid.IntRange(0, 100).Draw(t, "ms")) * time.Millisecond
			l.note(now, by)
			l.note(now.Add(stall/2), by-time.Millisecond) // still the same one
			all = append(all, late{by: by, until: now.Add(mindFor)})
			at := now.Add(stall/2 + time.Duration(rapid.IntRange(0, 200).Draw(t, "later"))*time.Second)
			want := []time.Duration{0, 0}
			for _, o := range all {
				if at.Before(o.until) {
					want = append(want, o.by)
				}
			}
			slices.Sort(want)
			slices.Reverse(want)
			if once, again := l.worst(at); once != want[0] || again != want[1] {
				t.Fatalf("worst are %v and %v, want %v", once, again, want[:2])
			}
			for i, o := range l.seen {
				asBad := slices.DeleteFunc(slices.Clone(l.seen[:i]), func(later late) bool { return later.by < o.by })
				if len(asBad) > 1 {
					t.Fatalf("%v is remembered, though %v came later", o.by, asBad)
				}
			}
		}
	})
}
