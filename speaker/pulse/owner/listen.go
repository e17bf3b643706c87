package owner

import (
	"time"

	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// listenFor is for how long a node that was cut off, as its link was down, listens at most before it takes over what it had: several
// times what hellos are apart. Others have taken over meanwhile, and it does not hear all of them at one moment.
const listenFor = 300 * time.Millisecond

// listening is since when links are up that the node answers on.
type listening struct {
	ups   map[int]uint64 // of each link, by its index, when it was up last
	until time.Time      // zero: no link came up lately
	alone bool           // this node was cut off before
}

// begin has the node listen.
func (l *listening) begin(now time.Time, alone bool) { l.until, l.alone = now.Add(listenFor), alone }

// update takes in the links that are up, and whether most of the other nodes were not heard.
func (l *listening) update(now time.Time, on networks, alone bool) {
	if l.ups == nil {
		l.ups = map[int]uint64{}
	}
	for _, link := range on.all() {
		if ups, known := l.ups[link.Index]; known && ups != link.Ups {
			l.begin(now, alone)
		}
		l.ups[link.Index] = link.Ups
	}
}

// waits tells whether the node takes over nothing yet, nor says that it serves: it knows of others that it has not heard since.
func (l *listening) waits(now time.Time, v hello.View) bool {
	return l.alone && now.Before(l.until) && len(v.Silent) > 0
}

// isOver tells, once, that the node has listened.
func (l *listening) isOver(now time.Time) bool {
	if l.until.IsZero() || now.Before(l.until) {
		return false
	}
	l.until = time.Time{}
	return true
}
