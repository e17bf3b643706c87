package owner

import (
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/hello"
)

const (
	// countAfter is how long after a death it counts. By then this node knows whether it was cut off itself. A shorter
	// one counts if there was no doubt.
	countAfter = time.Second
	// maxDampings is how much longer than Input.Damping a node is damped at most, in times: doubled four times.
	maxDampings = 16
)

// damping finds the nodes that flap: that died for the second time within Input.Damping. They come last among the
// candidates until that long after the last death, and twice as long if they die again within as much of the end of
// that (as in route flap damping, RFC 2439, where penalties grow). So no address moves more than four times within that time.
//
// The other nodes count, since a node that restarts has forgotten its deaths. They say so in hellos, and a node is damped for
// all while any says so: it learns of it with the first hello that it hears. A node that lost most of the
// others counts nothing, as it is the one that was cut off. So the outage of a switch damps no node.
type damping struct {
	of map[string]*flaps // other nodes that were heard
	at time.Time         // when something changes by time alone; zero: never
}

// flaps are the deaths of one node.
type flaps struct {
	alive bool
	since time.Time     // when it died, if that does not count yet
	sure  bool          // there was no doubt since then that it was not this node
	last  time.Time     // when the last death was that counts; zero: there was none
	hold  time.Duration // for how long from then on the node is damped
}

// update takes in which nodes are alive, and whether this one hears enough of them to know. It returns those that are damped, sorted.
func (d *damping) update(now time.Time, period time.Duration, self string, v hello.View, sure bool) (damped []string) {
	if d.of == nil {
		d.of = map[string]*flaps{}
	}
	for node, m := range v.Alive {
		if d.of[node] == nil && m.Heard && node != self {
			d.of[node] = &flaps{}
		}
	}
	d.at = time.Time{}
	for node, f := range d.of {
		_, silent := slices.BinarySearch(v.Silent, node)
		switch {
		case v.Alive[node].Heard:
			if !f.since.IsZero() && f.sure {
				f.die(period)
			}
			f.alive, f.since = true, time.Time{}
		case silent:
			f.miss(now, period, sure)
		case now.Before(f.last.Add(f.hold + period)):
			f.since = time.Time{}
		default: // it has left
			delete(d.of, node)
			continue
		}
		if !f.since.IsZero() {
			d.at = sooner(d.at, f.since.Add(countAfter))
		}
		if over := f.last.Add(f.hold); now.Before(over) {
			damped, d.at = append(damped, node), sooner(d.at, over)
		}
	}
	slices.Sort(damped)
	return damped
}

// miss notes that the node is silent.
func (f *flaps) miss(now time.Time, period time.Duration, sure bool) {
	if f.alive {
		f.alive, f.since, f.sure = false, now, true
	}
	f.sure = f.sure && sure
	if f.since.IsZero() || now.Before(f.since.Add(countAfter)) {
		return
	}
	if sure {
		f.die(period)
	}
	f.since = time.Time{}
}

// die counts the death.
func (f *flaps) die(period time.Duration) {
	switch over := f.last.Add(f.hold); {
	case f.since.Before(over):
	case !f.last.IsZero() && f.since.Before(over.Add(period)):
		f.hold = min(max(2*f.hold, period), maxDampings*period)
	default:
		f.hold = 0
	}
	f.last = f.since
}

// isDue tells whether something has changed by time alone.
func (d *damping) isDue(now time.Time) bool { return !d.at.IsZero() && !now.Before(d.at) }

// damp has the others told which nodes flap.
func (m *Machine) damp(now time.Time) {
	if m.in.Damping <= 0 {
		return
	}
	before := m.told.damped
	damped := m.damping.update(now, m.in.Damping, m.node, m.in.View, m.fencing.is == together || m.fencing.is == vouched)
	if slices.Equal(before, damped) {
		return
	}
	m.told.damped, m.told.stale = damped, true
	for _, node := range damped {
		if !slices.Contains(before, node) {
			m.warn("a node was lost again and again: it comes last among the candidates until it has been there for a while", "node", node, "while", m.damping.of[node].hold.String())
		}
	}
	for _, node := range before {
		if !slices.Contains(damped, node) {
			m.info("a node that was lost again and again comes last no more", "node", node)
		}
	}
}
