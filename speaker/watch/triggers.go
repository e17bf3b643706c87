package watch

import (
	"time"

	"fairlead.dev/fairlead/internal/view"
)

// triggersKept is how long a trigger is in the snapshots: longer than any pass that
// brings its change into the kernel, and any latency worth telling apart.
const triggersKept = 10 * time.Minute

// triggers remembers what caused the newest changes of endpoints, and when.
type triggers struct {
	since time.Time // what happened before is not ours to measure
	times map[view.EndpointsOf]time.Time
	// shared: a snapshot has the map, which must not be written to any more.
	shared bool
}

func newTriggers() triggers {
	return triggers{since: time.Now(), times: map[view.EndpointsOf]time.Time{}}
}

func (t *triggers) note(of view.EndpointsOf, at time.Time) {
	if at.Before(t.since) || !at.After(t.times[of]) {
		return
	}
	if t.shared {
		kept := make(map[view.EndpointsOf]time.Time, len(t.times)+1)
		for key, old := range t.times {
			if time.Since(old) < triggersKept {
				kept[key] = old
			}
		}
		t.times, t.shared = kept, false
	}
	t.times[of] = at
}

func (t *triggers) share() map[view.EndpointsOf]time.Time {
	t.shared = true
	return t.times
}
