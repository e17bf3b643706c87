package linkcheck

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// mep is the maintenance end point of an interface: it decides what to send there, and whether it is silent, given
// frames and times. It is driven by one caller at a time, which sends what next returns an interval apart.
type mep struct {
	node             string
	id               hello.ID // of node
	from             hello.ID // of the interface
	least            time.Duration
	multiplier       int
	interval, detect time.Duration // among as many nodes as are heard

	boot, number uint64
	sent         []time.Time // of the newest frames, by number, the oldest first
	others       map[string]*other
	met          map[string]hello.ID

	passed    time.Time // when the newest frame left that is known to have come to another node which is heard
	came      time.Time // when a frame came last that told of one
	since     time.Time // since when neither was longer ago than is waited for
	strict    time.Time // silence is excused until then; zero: it is not
	silent    bool
	abrupt    bool // the carrier was away: what is heard counts at once
	checkedAt time.Time
	late      time.Duration // the longest time that answers took, of those that came
	lateUntil time.Time
	heard     []hello.ID
	changed   bool // the status has, since it was taken last
}

// other is another node, heard on the interface.
type other struct {
	id           hello.ID
	boot, number uint64    // of its newest frame
	at           time.Time // when that came
	news         bool      // it was not told of yet
	toldIn       uint64    // the frame of ours in which it was told of last
	passed       time.Time // when our newest frame left that it has heard
}

// newMEP begins with an interface of which nothing is known. It has a while until its silence counts
// if it is early: a process that was just started does not take a node that serves
// out of service before it had time to be heard.
func newMEP(now time.Time, node, name string, interval time.Duration, multiplier int, random func() uint64, early bool) *mep {
	m := &mep{
		node: node, id: hello.IDOf(node), from: hello.IDOf(name), least: interval, multiplier: multiplier,
		boot: random(), number: random() >> 1, others: map[string]*other{}, met: map[string]hello.ID{}, checkedAt: now, changed: true,
		silent: !early, abrupt: true,
	}
	m.pace()
	if early {
		m.strict = now.Add(3 * m.detect)
	}
	return m
}

// pace sets the times for so many nodes.
func (m *mep) pace() {
	m.interval = max(m.least, time.Duration(len(m.others))*each)
	m.detect = m.interval * time.Duration(m.multiplier)
}

// wait is how long nothing may pass.
func (m *mep) wait(now time.Time) time.Duration {
	longest := m.interval * time.Duration(max(most, m.multiplier))
	if now.After(m.lateUntil) {
		return m.detect
	}
	return min(max(m.detect, 2*m.late), longest)
}

// reset is for an interface that came up: the nodes that were on it may be on another one now.
func (m *mep) reset(now time.Time) {
	clear(m.others)
	m.met, m.heard, m.sent = map[string]hello.ID{}, nil, nil
	m.passed, m.came, m.since, m.strict, m.checkedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}, now
	m.silent, m.abrupt, m.changed = true, true, true
	m.pace()
}

// next is the frame to send now.
func (m *mep) next(now time.Time) ccm {
	m.number++
	m.sent = append(m.sent, now)
	if keep := most + m.multiplier; len(m.sent) > keep {
		m.sent = slices.Delete(m.sent, 0, len(m.sent)-keep)
	}
	f := ccm{Node: m.node, From: m.from, Boot: m.boot, Number: m.number, Heard: map[hello.ID]uint32{}}
	var all []*other
	for _, o := range m.others {
		if o.news {
			all = append(all, o)
		}
	}
	if len(all) > maxHeard { // they take turns
		slices.SortFunc(all, func(a, b *other) int {
			return cmp.Or(cmp.Compare(a.toldIn, b.toldIn), bytes.Compare(a.id[:], b.id[:]))
		})
		all = all[:maxHeard]
	}
	for _, o := range all {
		f.Heard[o.id] = uint32(o.number)
		o.news, o.toldIn = false, m.number
	}
	return f
}

// sentAt is when a frame of ours left; zero if that is too long ago to matter.
func (m *mep) sentAt(number uint32) (at time.Time) {
	if ago := uint64(uint32(m.number) - number); ago < uint64(len(m.sent)) {
		at = m.sent[uint64(len(m.sent))-1-ago]
	}
	return at
}

// hear takes in a frame of a node that is known. The reason says why it is not believed; it is empty
// if it is, or is a copy of the newest one.
func (m *mep) hear(now time.Time, f ccm) (reason hello.Reason) {
	m.resume(now)
	var passed time.Time
	if number, is := f.Heard[m.id]; is {
		passed = m.sentAt(number)
	}
	o := m.others[f.Node]
	switch {
	case o == nil:
		o = &other{id: hello.IDOf(f.Node)}
		m.others[f.Node] = o
		m.pace()
	case f.Boot == o.boot && f.Number == o.number:
		return ""
	case f.Boot == o.boot && f.Number < o.number:
		return hello.ReasonReplayed
	case f.Boot != o.boot && passed.IsZero() && now.Before(o.at.Add(m.wait(now))):
		return hello.ReasonUnproven
	}
	if f.Boot == o.boot {
		m.misses(now, f.Number-o.number-1)
	}
	o.boot, o.number, o.at, o.news = f.Boot, f.Number, now, true
	if m.met[f.Node] != f.From { // others may read the one of before
		m.met, m.changed = maps.Clone(m.met), true
		m.met[f.Node] = f.From
	}
	if passed.After(o.passed) {
		o.passed = passed
	}
	if !passed.IsZero() {
		m.pass(now, passed)
	}
	if m.silent || len(m.heard) < hello.MaxHeard { // else it is no news
		m.check(now)
	}
	return ""
}

// passes tells whether frames went there and back a moment ago. What comes tells of a frame that
// left an interval before.
func (m *mep) passes(now time.Time) bool {
	wait := m.wait(now)
	return !m.passed.IsZero() && now.Before(m.came.Add(wait)) && now.Before(m.passed.Add(wait+m.interval))
}

// until is when check finds that it is silent if nothing passes until then; zero: it is silent already.
func (m *mep) until(now time.Time) time.Time {
	if m.silent {
		return time.Time{}
	}
	wait := m.wait(now)
	t := sooner(m.came.Add(wait), m.passed.Add(wait+m.interval))
	if m.strict.After(t) {
		return m.strict
	}
	return t
}

// pass takes in that a frame which left then has come to another node that is heard.
func (m *mep) pass(now, then time.Time) {
	if !m.passes(now) {
		m.since = now
	}
	if !m.passed.IsZero() {
		m.learn(now, max(now.Sub(m.came), then.Sub(m.passed)))
	}
	m.came = now
	if then.After(m.passed) {
		m.passed = then
	}
}

// misses takes in that so many frames of another node are missing. Two in a row are lost by chance, on a
// link that may lose three or four. More are that node's, the link of which may have been dead for a while.
func (m *mep) misses(now time.Time, frames uint64) {
	if frames == chance {
		m.learn(now, chance*m.interval)
	}
}

// learn takes in what took long. If it was not so long that it was an outage, it is to be waited for next time.
func (m *mep) learn(now time.Time, late time.Duration) {
	outage := m.interval * time.Duration(max(most, m.multiplier))
	if late >= m.detect*2/3 && late <= outage && late > m.remembered(now) {
		m.late, m.lateUntil = late, now.Add(mindFor)
	}
}

func (m *mep) remembered(now time.Time) time.Duration {
	if now.After(m.lateUntil) {
		return 0
	}
	return m.late
}

// resume excuses silence while this process did not run.
func (m *mep) resume(now time.Time) {
	if pause := now.Sub(m.checkedAt); pause > 2*m.interval {
		shift := func(t time.Time) time.Time {
			if t.IsZero() || t.Add(pause-m.interval).After(now) {
				return t
			}
			return t.Add(pause - m.interval)
		}
		m.passed, m.came = shift(m.passed), shift(m.came)
		for _, o := range m.others {
			o.at, o.passed = shift(o.at), shift(o.passed)
		}
	}
	m.checkedAt = now
}

// check makes true what the passing of time makes true. It is called once an interval at least, and
// when until says so.
func (m *mep) check(now time.Time) {
	m.resume(now)
	wait, passes, before := m.wait(now), m.passes(now), m.silent
	switch {
	case passes && m.silent && (m.abrupt || !now.Before(m.since.Add(steady))):
		m.silent, m.abrupt = false, false
	case passes && !m.silent:
		m.abrupt, m.strict = false, time.Time{}
	case passes:
	case m.strict.IsZero() || !now.Before(m.strict):
		m.silent, m.strict = true, time.Time{}
		m.abrupt = m.abrupt && m.passed.IsZero()
	}
	for name, o := range m.others {
		if silence := now.Sub(o.at); silence > wait+m.interval*most {
			delete(m.others, name) // it is told of no more
			m.pace()
		}
	}
	m.choose(now, wait)
	m.changed = m.changed || m.silent != before
}

// choose which nodes to say that they are heard: the same as before, as long as they are, so that
// there is no news to be told.
func (m *mep) choose(now time.Time, wait time.Duration) {
	there := map[hello.ID]bool{}
	for _, o := range m.others {
		if !o.passed.IsZero() && now.Before(o.passed.Add(wait+m.interval)) {
			there[o.id] = true
		}
	}
	heard := slices.DeleteFunc(slices.Clone(m.heard), func(id hello.ID) bool { return !there[id] })
	if len(heard) < hello.MaxHeard {
		// Each node begins at another place, so that a death is news of few.
		after := func(id hello.ID) int { return bytes.Compare(m.id[:], id[:]) }
		for _, id := range slices.SortedFunc(maps.Keys(there), func(a, b hello.ID) int {
			return cmp.Or(cmp.Compare(after(a), after(b)), bytes.Compare(a[:], b[:]))
		}) {
			if len(heard) < hello.MaxHeard && !slices.Contains(heard, id) {
				heard = append(heard, id)
			}
		}
	}
	if !slices.Equal(heard, m.heard) {
		m.heard, m.changed = heard, true
	}
}

// status is what is known now.
func (m *mep) status() Status {
	m.changed = false
	return Status{Silent: m.silent, Heard: m.heard, Met: m.met}
}
