package owner

import (
	"time"

	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// listenFor is for how long a node whose link came up listens before it takes over what it had, if it heard no other
// node without the link: several times what hellos are apart. Others have taken over meanwhile.
const listenFor = 300 * time.Millisecond

// listening is since when links are up that the node answers on.
type listening struct {
	ups   map[int]uint64 // of each link, by its index, when it was up last
	until time.Time      // zero: no link came up lately
}

// update takes in the links that are up.
func (l *listening) update(now time.Time, on networks) {
	if l.ups == nil {
		l.ups = map[int]uint64{}
	}
	for _, link := range on.all() {
		if ups, known := l.ups[link.Index]; known && ups != link.Ups {
			l.until = now.Add(listenFor)
		}
		l.ups[link.Index] = link.Ups
	}
}

// waits tells whether the node takes over nothing yet: it knows of others, and has heard none since.
func (l *listening) waits(now time.Time, self string, v hello.View) bool {
	if !now.Before(l.until) || len(v.Silent) == 0 {
		return false
	}
	for node, m := range v.Alive {
		if node != self && m.Heard {
			return false
		}
	}
	return true
}

// isOver tells, once, that the node has listened.
func (l *listening) isOver(now time.Time) bool {
	if l.until.IsZero() || now.Before(l.until) {
		return false
	}
	l.until = time.Time{}
	return true
}
