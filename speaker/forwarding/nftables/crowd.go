package nftables

import "time"

// crowd knows whether the map of session affinity has had room for all clients of late. The
// kernel does not say how many elements it holds short of listing up to a million of them,
// but a rule counts the packets of those whom it has no room for.
type crowd struct {
	looked    time.Time // zero: never
	counted   uint64    // then
	forgetful bool
}

// recount is how often the counters are read: a handful of rules for each size that a group
// of endpoints has.
const recount = time.Minute

// look reads the counters, unless that was done a short time ago or nobody has affinity. What
// cannot be asked shows elsewhere.
func (c *crowd) look(l *ledger) {
	if len(l.seatings) == 0 {
		*c = crowd{}
		return
	}
	if time.Since(c.looked) < recount {
		return
	}
	counted, err := l.counted()
	if err != nil {
		return
	}
	// They begin anew when the rules are written anew, as by this process when it begins.
	c.forgetful = !c.looked.IsZero() && counted != c.counted && counted > 0
	c.looked, c.counted = time.Now(), counted
}
