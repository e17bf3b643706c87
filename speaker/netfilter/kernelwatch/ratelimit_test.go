package kernelwatch

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWorkTakesAShareOfTheTime lets others write all the time: what they cause
// must not take more than its share, but be possible at once after a while of peace.
func TestWorkTakesAShareOfTheTime(t *testing.T) {
	for name, work := range map[string]struct {
		share int
		spend func(*RateLimit, time.Duration)
	}{"looks": {share, (*RateLimit).Spend}, "repairs": {healing, (*RateLimit).Healed}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { overwork(t, work.share, work.spend) })
		})
	}
}

func overwork(t *testing.T, of int, spend func(*RateLimit, time.Duration)) {
	const took, run, look = 200 * time.Millisecond, 10 * time.Minute, 250 * time.Millisecond
	b := NewRateLimit()
	began := time.Now()
	var spent, longest time.Duration
	last := began
	for time.Since(began) < run {
		if b.Allowed() {
			longest = max(longest, time.Since(last))
			time.Sleep(took)
			spend(&b, took)
			spent += took
			last = time.Now()
		}
		time.Sleep(look)
	}
	part := func(d time.Duration) time.Duration { return d / time.Duration(of) }
	if most := part(atOnce*share) + part(run) + took; spent > most {
		t.Errorf("%s of %s were spent, want at most %s", spent, run, most)
	}
	if longest > time.Duration(of+2)*took {
		t.Errorf("once it was not allowed for %s", longest)
	}
	time.Sleep(share * atOnce)
	for range 5 {
		if !b.Allowed() {
			t.Error("not allowed at once after a while of peace")
		}
		spend(&b, took)
	}
}

// TestSlowWorkIsAllowedAgainSoon has work take a minute, as on a node that is overloaded:
// what is amiss must not wait for twenty.
func TestSlowWorkIsAllowedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewRateLimit()
		for range 3 {
			if !b.Allowed() {
				t.Errorf("not allowed %s after the work", longest)
			}
			b.Spend(time.Minute)
			time.Sleep(longest - time.Second)
			if b.Allowed() {
				t.Error("allowed at once")
			}
			time.Sleep(time.Second + time.Millisecond)
		}
	})
}
