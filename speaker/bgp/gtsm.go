package bgp

import (
	"errors"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"golang.org/x/sys/unix"
)

// hopProbe is how a session with a router next to us finds out whether it sends a TTL of 255,
// and asks for that from then on (GTSM, RFC 5082), without a word in either's configuration.
// Nobody can be told of a TTL before a session is up, and of one that is up the kernel does
// not say it. So a KEEPALIVE is sent while less than 255 is dropped, and it is seen whether
// the router acknowledges it. If it does not, what it sent is let in again, and TCP makes good
// what was dropped. Nobody farther away can have the answer be yes or no.
type hopProbe struct {
	// first is how long a session is up before it is tried: routes go out first. Each failure
	// doubles the pause until the next attempt, to at most last.
	first, last time.Duration
	// patience is how long a router takes to acknowledge: many times what one on the same
	// network does.
	patience time.Duration
	// watch is how often it is looked whether the router still acknowledges what it gets.
	watch time.Duration
}

func defaultHopProbe() hopProbe {
	return hopProbe{first: 2 * time.Second, last: 10 * time.Minute, patience: 300 * time.Millisecond, watch: time.Second}
}

// insist asks for a TTL of 255 whenever the router is found to send that, until the session
// gives the relay up, and tells when that begins and ends.
func (p hopProbe) insist(r *relay, told func(asked bool)) error {
	six := r.remote.Addr().Is6()
	for pause := p.first; r.wait(pause); pause = min(2*pause, p.last) {
		if err := setHopsOf(r.router, six, firstHop); err != nil {
			return err
		}
		if p.answered(r) {
			told(true)
			p.untilUnanswered(r)
			told(false)
		}
		if err := setHopsOf(r.router, six, anyHop); err != nil {
			return err
		}
	}
	return nil
}

// answered tells whether the router acknowledges a message.
func (p hopProbe) answered(r *relay) bool {
	keepalive := message(packet.BGP_MSG_KEEPALIVE)
	before, err := r.acknowledged()
	if err != nil || !r.say(keepalive) {
		return false
	}
	const looks = 30
	for range looks {
		if !r.wait(p.patience / looks) {
			return false
		}
		if now, err := r.acknowledged(); err == nil && now.bytes >= before.bytes+uint64(len(keepalive)) {
			return true
		}
	}
	return false
}

// untilUnanswered returns when the router leaves unacknowledged what it was sent, as when it
// is told to send another TTL. A router that is gone does the same, and is found to be by
// other means.
func (p hopProbe) untilUnanswered(r *relay) {
	var before acknowledgements
	for r.wait(p.watch) {
		now, err := r.acknowledged()
		if err != nil || now.missing && before == now {
			return
		}
		before = now
	}
}

// acknowledgements is how far the router has acknowledged what it was sent.
type acknowledgements struct {
	bytes   uint64
	missing bool // something is on its way
}

func (r *relay) acknowledged() (acknowledgements, error) {
	raw, err := r.router.SyscallConn()
	if err != nil {
		return acknowledgements{}, err
	}
	var info *unix.TCPInfo
	var failed error
	err = raw.Control(func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err := errors.Join(err, failed); err != nil {
		return acknowledgements{}, err
	}
	return acknowledgements{bytes: info.Bytes_acked, missing: info.Unacked > 0}, nil
}
