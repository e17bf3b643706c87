package ether

import "time"

const (
	// perSecond is how many frames are read of an interface in a second: more than stations ask, and little enough for
	// other processes to get their turn, since frames are read before these. The kernel drops what there is no room for.
	perSecond = 20_000
	// atOnce may come at once: what waits in the buffer after an outage.
	atOnce = 8_192
	// pause is taken by the reader once all are used up.
	pause = 5 * time.Millisecond
)

// budget is a token bucket of frames: in a broadcast storm, hundreds of thousands come in a second.
type budget struct {
	used int       // of atOnce
	at   time.Time // until when what was used is given back
}

// take counts a frame, and returns how long to wait before the next one.
func (b *budget) take(now time.Time) time.Duration {
	if since := now.Sub(b.at); since >= time.Second { // in which all is given back
		b.used, b.at = 0, now
	} else if back := int(since * perSecond / time.Second); back > 0 {
		b.used = max(b.used-back, 0)
		b.at = b.at.Add(time.Duration(back) * time.Second / perSecond)
	}
	if b.used++; b.used > atOnce {
		return pause
	}
	return 0
}
