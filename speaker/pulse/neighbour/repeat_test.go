package neighbour

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// repeats makes the port answer for the addresses that have an interval here, 0 for never.
func repeats(t *testing.T, p *port, every map[netip.Addr]time.Duration) {
	t.Helper()
	if err := p.answer(slices.Collect(maps.Keys(every)), nil, every); err != nil {
		t.Fatal(err)
	}
}

// again are the times at which the address was announced after the six of the schedule.
func (r *recorder) again(t *testing.T, a netip.Addr) []time.Duration {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var at []time.Duration
	for frames := range slices.Chunk(r.sent[a], 2) {
		at = append(at, frames[0])
	}
	if len(at) < len(schedule) {
		t.Fatalf("%s was announced at %v", a, at)
	}
	return at[len(schedule):]
}

// said are the MACs of all frames until now.
func (r *recorder) said() []MAC {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.macs)
}

// atInterval fails the test unless these times begin within an interval of when the schedule
// was over, and go on to the end without a drift, each up to an eighth late.
func atInterval(t *testing.T, at []time.Duration, begun, end, every time.Duration) {
	t.Helper()
	over, late := begun+5*time.Second, every/unsteady
	if len(at) == 0 || at[0] < over || at[0] > over+every+late || at[len(at)-1] < end-every-late {
		t.Fatalf("every %v from %v to %v: announced at %v", every, begun, end, at)
	}
	for i, when := range at {
		if off := when - at[0] - time.Duration(i)*every; off.Abs() > late {
			t.Fatalf("every %v: announcement %d is off by %v, of %v", every, i, off, at)
		}
	}
}

func TestAnAddressIsAnnouncedAtItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		p := r.open()
		defer p.close()
		third := netip.MustParseAddr("192.0.2.12")
		every := map[netip.Addr]time.Duration{vip: time.Minute, other: 5 * time.Second, third: 0}
		for range 1200 { // telling it again changes nothing
			repeats(t, p, every)
			time.Sleep(30 * time.Second)
		}
		atInterval(t, r.again(t, vip), 0, 10*time.Hour, time.Minute)
		atInterval(t, r.again(t, other), 0, 10*time.Hour, 5*time.Second)
		if at := r.again(t, third); len(at) > 0 {
			t.Errorf("announced without an interval at %v", at)
		}
		sent := 2 * (3*len(schedule) + len(r.again(t, vip)) + len(r.again(t, other)))
		if n := p.count.announcements.Load(); n != uint64(sent) {
			t.Errorf("counted %d frames of announcements, want %d", n, sent)
		}
	})
}

// TestAnotherIntervalIsTaken: at once, and with none of it nothing runs any more: the test would
// not end if a goroutine was left, as the port is not closed.
func TestAnotherIntervalIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		p := r.open()
		repeats(t, p, map[netip.Addr]time.Duration{vip: time.Hour})
		time.Sleep(time.Minute)
		repeats(t, p, map[netip.Addr]time.Duration{vip: 10 * time.Second})
		time.Sleep(9 * time.Minute)
		repeats(t, p, map[netip.Addr]time.Duration{vip: 0})
		at := r.again(t, vip)
		for len(at) > 0 && at[0] < time.Minute { // by chance in the first minute of the hour
			at = at[1:]
		}
		atInterval(t, at, time.Minute, 10*time.Minute, 10*time.Second)
		before := len(r.again(t, vip))
		time.Sleep(time.Hour)
		if now := r.again(t, vip); len(now) != before {
			t.Errorf("announced after the interval was gone: %v", now[before:])
		}
		if p.intervals != nil {
			t.Error("something waits to announce nothing")
		}
	})
}

// TestWhatIsAnsweredNoMoreIsAnnouncedNoMore: when the address leaves, when the port is closed
// and when questions are not heard, until the address is back.
func TestWhatIsAnsweredNoMoreIsAnnouncedNoMore(t *testing.T) {
	every := map[netip.Addr]time.Duration{vip: 10 * time.Second, other: 10 * time.Second}
	for name, end := range map[string]func(t *testing.T, r *recorder, p *port){
		"it leaves": func(t *testing.T, _ *recorder, p *port) {
			if err := p.answer([]netip.Addr{other}, []netip.Addr{vip}, every); err != nil {
				t.Fatal(err)
			}
		},
		"all leave": func(t *testing.T, _ *recorder, p *port) { answer(t, p) },
		"closed":    func(_ *testing.T, _ *recorder, p *port) { p.close() },
		"not heard": func(t *testing.T, r *recorder, p *port) {
			r.deaf = errors.New("no room for another group")
			if err := p.answer([]netip.Addr{vip, other}, nil, every); err == nil {
				t.Error("no error")
			}
			r.deaf = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRecorder()
				p := r.open()
				repeats(t, p, every)
				time.Sleep(time.Minute)
				end(t, r, p)
				atInterval(t, r.again(t, vip), 0, time.Minute, 10*time.Second)
				before := len(r.again(t, vip))
				time.Sleep(time.Minute)
				if now := r.again(t, vip); len(now) != before {
					t.Errorf("announced at %v", now[before:])
				}
				if p.closed() {
					return
				}
				if err := p.describe(Interface{MAC: ourMAC, Ups: 1}); err != nil {
					t.Fatal(err)
				}
				repeats(t, p, every)
				time.Sleep(time.Minute)
				p.close()
				if now := r.again(t, vip)[before:]; len(now) < len(schedule) {
					t.Errorf("back, and announced at %v", now)
				} else {
					atInterval(t, now[len(schedule):], 2*time.Minute, 3*time.Minute, 10*time.Second)
				}
			})
		})
	}
}

// TestAnnouncementsGoByTheMACOfTheInterface that it has then.
func TestAnnouncementsGoByTheMACOfTheInterface(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		p := r.open()
		defer p.close()
		repeats(t, p, map[netip.Addr]time.Duration{vip: 10 * time.Second})
		time.Sleep(time.Minute)
		before := len(r.said())
		if err := p.describe(Interface{MAC: anotherMAC}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		again := r.said()[before:]
		if slices.Contains(again, ourMAC) || len(again) < 2*(len(schedule)+4) {
			t.Errorf("%d frames after the change, by %v", len(again), slices.Compact(again))
		}
	})
}

// TestManyAddressesAreSpreadOverTheInterval: those that came together are not announced together.
func TestManyAddressesAreSpreadOverTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		p := r.open()
		defer p.close()
		every := map[netip.Addr]time.Duration{}
		for i := range 10_000 {
			every[netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})] = time.Minute
		}
		repeats(t, p, every)
		const end = 5 * time.Minute
		time.Sleep(end)
		seconds := map[time.Duration]int{}
		for a := range every {
			at := r.again(t, a)
			atInterval(t, at, 0, end, time.Minute)
			for _, when := range at {
				seconds[when.Truncate(time.Second)]++
			}
		}
		// 167 in a second are the mean, and 13 the standard deviation.
		if most := slices.Max(slices.Collect(maps.Values(seconds))); most > 270 {
			t.Errorf("%d addresses were announced within a second", most)
		}
	})
}

// TestTurns: whatever the intervals were, each address with one has one turn, which comes within
// the interval; those that nobody took in time are taken once.
func TestTurns(t *testing.T) {
	addresses := rapid.SampledFrom([]netip.Addr{vip, other, netip.MustParseAddr("192.0.2.12"), netip.MustParseAddr("192.0.2.13")})
	intervals := rapid.SampledFrom([]time.Duration{5 * time.Second, 30 * time.Second, time.Hour})
	rapid.Check(t, func(t *rapid.T) {
		var q turns
		now, every := time.Unix(1_000_000, 0), map[netip.Addr]time.Duration{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 7200).Draw(t, "seconds")) * time.Second)
			if rapid.Bool().Draw(t, "another table") {
				every = rapid.MapOf(addresses, intervals).Draw(t, "table")
				q.keep(every, now)
			}
			due := q.take(now)
			taken := slices.Clone(due)
			slices.SortFunc(taken, netip.Addr.Compare)
			if len(slices.Compact(taken)) != len(due) {
				t.Fatalf("taken %v at once", due)
			}
			have := map[netip.Addr]time.Duration{}
			for _, one := range q {
				have[one.address] = one.every
				if wait := one.due.Sub(now); wait <= 0 || wait > 5*time.Second+one.every+one.every/unsteady {
					t.Fatalf("%s, every %v, comes in %v", one.address, one.every, wait)
				}
			}
			if !maps.Equal(have, every) || len(q) != len(every) {
				t.Fatalf("turns %v, want those of %v", q, every)
			}
		}
	})
}
