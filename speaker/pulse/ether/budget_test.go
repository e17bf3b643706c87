package ether

import (
	"testing"
	"time"
)

// TestTheBudgetOfFrames: what stations ask is read at once, also after an outage, and of a storm so many as another
// process has time beside.
func TestTheBudgetOfFrames(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var b budget
	for range 10 * perSecond { // a second each
		now = now.Add(time.Second / perSecond)
		if pause := b.take(now); pause > 0 {
			t.Fatalf("a pause of %v while %d come in a second", pause, perSecond)
		}
	}
	now = now.Add(time.Second)
	for range atOnce {
		if pause := b.take(now); pause > 0 {
			t.Fatalf("a pause of %v in what waits after an outage", pause)
		}
	}
	const each, storm = 2 * time.Microsecond, 10 * time.Second // what it takes to read one
	read, busy := 0, time.Duration(0)
	for end := now.Add(storm); now.Before(end); read++ {
		pause := b.take(now)
		busy += each
		now = now.Add(each + pause)
	}
	if most := perSecond*int(storm/time.Second) + atOnce; read > most || read < most/2 || busy > storm/20 {
		t.Errorf("%d were read in a storm, in %v of %v; want no more than %d", read, busy, storm, most)
	}
}
