package owner

import (
	"time"

	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

const (
	// A station is polled so often, so far apart, and so long after the last poll its reply counts.
	polls     = 3
	pollEvery = 25 * time.Millisecond
	pollHolds = time.Second
	// pollRest is the time between polls for the sake of one address, whatever is heard of it.
	pollRest = 100 * time.Millisecond
)

// poll asks the one station that claims an address whether it answers for it (RFC 1122, section 2.3.2.1; RFC 4861,
// section 7.3.1). An unsolicited frame may come from any station, with any sender in it, and alone moves no
// address: a switch delivers the poll to the station itself.
type poll struct {
	station neighbour.MAC
	link    int       // the index of the interface that it was heard on
	left    int       // how many polls are still to be sent
	at      time.Time // when the next one is due, or when another station may be polled
	asked   time.Time // when the last one was sent
}

// begin has the station of a claim polled.
func (p *poll) begin(now time.Time, claim neighbour.Claim) {
	if p.left == 0 && !now.Before(p.at) {
		*p = poll{station: claim.Station, link: claim.Index, left: polls, at: now, asked: p.asked}
	}
}

// isAnsweredBy tells whether a claim is the reply to the poll.
func (p *poll) isAnsweredBy(now time.Time, claim neighbour.Claim) bool {
	return claim.Reply && claim.Station == p.station && !p.asked.IsZero() && !now.After(p.asked.Add(pollHolds))
}

// isDue tells whether a poll is to be sent now, and counts it as sent.
func (p *poll) isDue(now time.Time) bool {
	if p.left == 0 || now.Before(p.at) {
		return false
	}
	p.left--
	p.at, p.asked = now.Add(pollEvery), now
	if p.left == 0 {
		p.at = now.Add(pollRest)
	}
	return true
}

// isOver tells whether no reply counts any more.
func (p *poll) isOver(now time.Time) bool { return p.left == 0 && now.After(p.asked.Add(pollHolds)) }

// next is when a poll is to be sent; zero: never.
func (p *poll) next() time.Time {
	if p.left == 0 {
		return time.Time{}
	}
	return p.at
}
