package nftables

import "time"

// affinityOverflow knows whether the map of session affinity has had room for all clients of late. The
// kernel does not say how many elements it holds short of listing up to a million of them,
// but a rule counts the packets of clients that it has no room for.
type affinityOverflow struct {
	looked  time.Time // zero: never
	counted uint64    // then
	full    bool
}

// recount is how often the counters are read: a handful of rules for each size that a group
// of endpoints has.
const recount = time.Minute

// look reads the counters, unless that was done a short time ago or no port has affinity. What
// cannot be asked shows elsewhere.
func (c *affinityOverflow) look(l *model) {
	if len(l.assignments) == 0 {
		*c = affinityOverflow{}
		return
	}
	if time.Since(c.looked) < recount {
		return
	}
	counted, err := l.Packets()
	if err != nil {
		return
	}
	// They begin anew when the rules are written anew, as by this process when it begins.
	c.full = !c.looked.IsZero() && counted != c.counted && counted > 0
	c.looked, c.counted = time.Now(), counted
}
