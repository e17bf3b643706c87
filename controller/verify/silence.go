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

// silence are by node the BGPPeers that it has to announce to, where none of its sessions with them is established.
type silence map[string][]string

// silent finds the nodes from which an advertisement reaches no router. A session of which its node tells nothing may
// be established.
func (r *reach) silent(ad *view.BGPAdvertisement) silence {
	if len(r.down) == 0 {
		return nil
	}
	var found silence
	for at, chosen := range r.chosen(ad.NodeSelectors) {
		if !chosen {
			continue
		}
		var peers []string
		speaks := false
		for i, p := range r.peers {
			if r.at[i][at] && ad.IsFor(p.Name) {
				peers = append(peers, p.Name)
				speaks = speaks || !r.down[pair{r.nodes[at].Name, p.Name}]
			}
		}
		if len(peers) > 0 && !speaks {
			if found == nil {
				found = silence{}
			}
			slices.Sort(peers)
			found[r.nodes[at].Name] = peers
		}
	}
	return found
}

// silentTowards says which routers a node does not reach by one of the ways, "" if it has no such way.
func silentTowards(ways []way, node string) string {
	var peers []string
	for _, w := range ways {
		peers = append(peers, w.down[node]...)
	}
	if len(peers) == 0 {
		return ""
	}
	slices.Sort(peers)
	return "no BGP session is established: see the condition Established of BGPPeer " + problem.List(slices.Compact(peers), " ")
}

// downFor are the sessions that have been down for an outage.
func downFor(c *view.Cluster, now time.Time) map[pair]bool {
	down := map[pair]bool{}
	for _, s := range c.BGPSessions {
		if !s.Established && !s.Changed.IsZero() && now.Sub(s.Changed) >= outage {
			down[pair{s.Node, s.Peer}] = true
		}
	}
	return down
}

// NextOutage returns when the next session has been down for so long that Services are told of it; the zero time for never.
func NextOutage(c *view.Cluster, now time.Time) (next time.Time) {
	for _, s := range c.BGPSessions {
		if s.Established || s.Changed.IsZero() {
			continue
		}
		if at := s.Changed.Add(outage); at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
