package hello

import (
	"net/netip"
	"testing"
	"time"
)

// TestNodesLearnOfEachOtherAtDifferentTimes: whatever the order in which nodes are told of
// those that come and go, nobody dies of it.
func TestNodesLearnOfEachOtherAtDifferentTimes(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		const size, more = 20, 12
		w := newWorld(size+more, seed)
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
