package verify

import (
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// outage is how long a BGP session is down before Services are told of it: that a speaker or a router which begins anew
// takes longer is told by the BGPPeer alone, not by each Service.
const outage = 10 * time.Second

// silence are by node the BGPPeers that it has to announce to, where all of its sessions with them are down.
type silence map[string][]string

// silentTowards says which routers the first of the nodes that has such ways does not reach by them, "" if none has.
func silentTowards(ways []way, nodes ...string) string {
	for _, node := range nodes {
		var peers []string
		for _, w := range ways {
			peers = append(peers, w.down[node]...)
		}
		if len(peers) > 0 {
			slices.Sort(peers)
			return "no BGP session is established: see the condition Established of BGPPeer " + problem.List(slices.Compact(peers), " ")
		}
	}
	return ""
}

// downFor are the sessions that have been down for an outage.
func downFor(c *view.Cluster, now time.Time) map[pair]bool {
	down := map[pair]bool{}
	for _, s := range c.BGPSessions {
		if at := outageOf(s); !at.IsZero() && !at.After(now) {
			down[pair{s.Node, s.Peer}] = true
		}
	}
	return down
}

// NextOutage returns when the next session has been down for so long that Services are told of it; the zero time for never.
func NextOutage(c *view.Cluster, now time.Time) (next time.Time) {
	for _, s := range c.BGPSessions {
		if at := outageOf(s); at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// outageOf is when a session has been down for an outage, past or to come; the zero time for one that is established, or
// of which its node tells nothing.
func outageOf(s *view.BGPSession) time.Time {
	if s.Established || s.Changed.IsZero() {
		return time.Time{}
	}
	return s.Changed.Add(outage)
}
