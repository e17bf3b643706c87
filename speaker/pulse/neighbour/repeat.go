package neighbour

import (
	"container/heap"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// unsteady is the part of an interval by which a turn is late at random, so that nodes and
// addresses which began together do not stay together.
const unsteady = 8

// turn is when an address is announced next.
type turn struct {
	address netip.Addr
	every   time.Duration
	// round is where the turn would be if none were ever late. The next one is counted from it,
	// so that what is late does not add up.
	round, due time.Time
}

// pass makes it the turn of the next round. Rounds that are over, as when the process was
// stopped, are left out.
func (t *turn) pass(now time.Time) {
	t.begin(t.round.Add(now.Sub(t.round).Truncate(t.every) + t.every))
}

func (t *turn) begin(round time.Time) {
	t.round, t.due = round, round.Add(rand.N(t.every/unsteady))
}

// turns are those of several addresses, one each: a heap with the next one first.
type turns []turn

// keep makes them the turns of exactly these addresses. Where an interval is the same, the
// turn stays. New ones begin anywhere within an interval, from when the schedule is over: ten
// thousand addresses that came together are then announced one by one, all through the interval.
func (q *turns) keep(every map[netip.Addr]time.Duration, now time.Time) {
	known := make(map[netip.Addr]bool, len(every))
	*q = slices.DeleteFunc(*q, func(t turn) bool {
		known[t.address] = every[t.address] == t.every
		return !known[t.address]
	})
	heap.Init(q)
	over := now.Add(schedule[len(schedule)-1])
	for a, interval := range every {
		if !known[a] {
			t := turn{address: a, every: interval}
			t.begin(over.Add(rand.N(interval)))
			heap.Push(q, t)
		}
	}
}

// take returns the addresses whose turn it is, and has them wait for the next one.
func (q *turns) take(now time.Time) []netip.Addr {
	var due []netip.Addr
	for len(*q) > 0 && !(*q)[0].due.After(now) {
		t := heap.Pop(q).(turn)
		due = append(due, t.address)
		t.pass(now)
		heap.Push(q, t)
	}
	return due
}

// next returns a channel that receives when an address is due; nil: none will be.
func (q *turns) next() <-chan time.Time {
	if len(*q) == 0 {
		return nil
	}
	return time.After(time.Until((*q)[0].due))
}

// Len and those that follow are heap.Interface.
func (q *turns) Len() int           { return len(*q) }
func (q *turns) Less(i, j int) bool { return (*q)[i].due.Before((*q)[j].due) }
func (q *turns) Swap(i, j int)      { (*q)[i], (*q)[j] = (*q)[j], (*q)[i] }

// Push is for package heap.
func (q *turns) Push(t any) { *q = append(*q, t.(turn)) }

// Pop is for package heap.
func (q *turns) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// pace has those of the addresses announced again that have an interval. Switches forget the port of
// a MAC that nothing comes from, and flood what is sent to it: an address that only receives, as when
// the answers leave by another interface, has nothing else to be remembered by.
func (p *port) pace(addresses []netip.Addr) {
	every := map[netip.Addr]time.Duration{}
	for _, a := range addresses {
		if interval := p.every[a]; interval > 0 {
			every[a] = interval
		}
	}
	if maps.Equal(every, p.repeated) {
		return
	}
	p.repeated = every
	if len(every) == 0 {
		close(p.intervals)
		p.intervals = nil
		return
	}
	if p.intervals == nil {
		p.intervals = make(chan map[netip.Addr]time.Duration, 1)
		go p.repeat(p.intervals)
	}
	select {
	case <-p.intervals: // not taken yet, and old now
	default:
	}
	p.intervals <- every
}

// repeat announces addresses at their intervals, as long as they are answered for, until the
// port or the channel is closed.
func (p *port) repeat(intervals <-chan map[netip.Addr]time.Duration) {
	var waiting turns
	for {
		select {
		case <-p.done:
			return
		case every, open := <-intervals:
			if !open {
				return
			}
			waiting.keep(every, time.Now())
		case <-waiting.next():
			for _, a := range waiting.take(time.Now()) {
				if now := p.answers.Load(); now.Includes(a) {
					p.say(Announcement, now.MAC, a)
				}
			}
		}
	}
}
