package hello

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestNodesLearnOfEachOtherAtDifferentTimes: whatever the order in which nodes are told of
// those that come and go, nobody dies of it.
func TestNodesLearnOfEachOtherAtDifferentTimes(t *testing.T) {
	for seed := range uint64(4) {
		const size, more = 20, 12
		w := newWorld(size+more, seed)
		w.limit = few
		all := map[string]Peer{}
		for _, h := range w.hosts {
			all[h.name] = Peer{Addrs: []netip.Addr{h.addr}, Ready: true}
		}
		tell := func(i int, those []int) {
			peers := map[string]Peer{}
			for _, j := range those {
				if i != j {
					peers[w.hosts[j].name] = all[w.hosts[j].name]
				}
			}
			w.set(i, func(want *Wanted) { want.Peers = peers })
		}
		for i := range size {
			w.hosts[i].want.Peers = nil
			w.start(i)
			tell(i, upTo(size))
		}
		w.run(4 * testDetect)
		for i := size; i < size+more; i++ { // they come
			w.hosts[i].want.Peers = nil
			w.start(i)
			tell(i, upTo(size+more))
		}
		for _, i := range w.random.Perm(size) {
			tell(i, upTo(size+more))
			w.run(time.Duration(w.random.Int64N(int64(2 * time.Second))))
			w.expectNoDeaths(t, "while nodes come")
		}
		w.run(4 * testDetect)
		w.expectAlive(t, "all have come", upTo(size+more))
		for _, i := range w.random.Perm(size + more) { // some are deleted and run on for a while
			tell(i, upTo(size))
			w.run(time.Duration(w.random.Int64N(int64(600 * time.Millisecond))))
			w.expectAllSee(t, "while nodes go", upTo(size))
		}
	}
}

// TestAnUpgrade, node by node, from a release that has hellos to everybody only, and back:
// nobody dies, and a death is noticed at every moment.
func TestAnUpgrade(t *testing.T) {
	const size = 24
	w := newWorld(size, 1)
	w.limit = 10 * size
	for i := range size {
		w.start(i)
	}
	w.run(4 * testDetect)
	w.expectAlive(t, "before", upTo(size))
	replace := func(i, limit int) {
		h := w.hosts[i].state
		h.part(w.now, 10*time.Second)
		w.send(i, h.hellos(w.now))
		for _, out := range h.rest(w.now) {
			w.send(i, out)
		}
		w.hosts[i].state = nil
		w.run(time.Second)
		w.limit = limit
		w.start(i)
		w.run(12 * time.Second)
		w.expectNoDeaths(t, fmt.Sprintf("node-%d was replaced", i))
		w.expectAlive(t, fmt.Sprintf("node-%d was replaced", i), upTo(size))
	}
	for i := range size {
		replace(i, few)
		if i == size/2 {
			for _, victim := range []int{2, size - 2} { // a new one and an old one
				before := w.hosts[victim].state
				w.hosts[victim].state = nil
				w.run(longest + testInterval + hops) // one of them was away before
				w.expectAlive(t, "a death amid an upgrade", slices.Delete(upTo(size), victim, victim+1))
				w.hosts[victim].state = before
				w.wake(victim)
				w.run(4*testInterval + hops)
				w.expectAlive(t, "alive again amid an upgrade", upTo(size))
				for _, h := range w.hosts {
					h.state.stats.Deaths = 0
				}
			}
		}
	}
	for i := range size {
		replace(i, 10*size)
	}
}

// TestTheMeshChangesOver as the cluster grows and shrinks past the size of a full mesh, while
// nodes learn of that at different times.
func TestTheMeshChangesOver(t *testing.T) {
	const size = 12
	w := newWorld(size, 1)
	w.limit = size - 1
	all := w.hosts[0].want.Peers
	for i := range size - 1 {
		w.hosts[i].want.Peers = cloneWithout(w.hosts[i].want.Peers, w.hosts[size-1].name)
		w.start(i)
	}
	w.run(4 * testDetect)
	for round := range 3 {
		w.start(size - 1)
		for _, i := range w.random.Perm(size - 1) {
			w.set(i, func(want *Wanted) { want.Peers[w.hosts[size-1].name] = all[w.hosts[size-1].name] })
			w.run(time.Duration(w.random.Int64N(int64(2 * time.Second))))
			w.expectAllSee(t, fmt.Sprint("growing ", round), upTo(size-1))
		}
		w.run(4 * testDetect)
		w.expectAlive(t, "grown", upTo(size))
		for _, i := range w.random.Perm(size - 1) {
			w.set(i, func(want *Wanted) { delete(want.Peers, w.hosts[size-1].name) })
			w.run(time.Duration(w.random.Int64N(int64(2 * time.Second))))
			w.expectAllSee(t, fmt.Sprint("shrinking ", round), upTo(size-1))
		}
		w.hosts[size-1].state = nil
		w.run(4 * testDetect)
		w.expectAlive(t, "shrunk", upTo(size-1))
	}
}

func cloneWithout(peers map[string]Peer, node string) map[string]Peer {
	c := map[string]Peer{}
	for name, p := range peers {
		if name != node {
			c[name] = p
		}
	}
	return c
}
