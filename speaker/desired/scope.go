package desired

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/election"
)

// scope is where nodes may answer for the addresses that some L2Advertisements cover: the
// same for all of these addresses, whether or not a node can serve them now.
type scope struct {
	nodes      []string       // sorted
	preferred  map[string]int // sums of the weights; no entry: 0
	interfaces []string       // of this node
	named      []string       // nodes of which interfaces are named, sorted
	interval   time.Duration  // between announcements of this node; 0: it repeats none
	noPreempt  bool           // one of them says so, for whichever nodes
	// first are the nodes that are preferred most; among them load is bounded.
	first []string
	tiers *election.Tiers // of all nodes; nil: not known yet
}

func (a *announcer) scopeOf(entry *announced) *scope {
	var names []string
	for name, ad := range a.cluster.L2Advertisements {
		if ad.Pools.Matches(entry.pool) && matchesAll(ad.ServiceSelectors, entry.services) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	key := strings.Join(names, " ")
	s := a.scopes[key]
	if s == nil {
		s = a.newScope(names)
		a.scopes[key] = s
	}
	return s
}

func (a *announcer) newScope(ads []string) *scope {
	s := &scope{preferred: map[string]int{}}
	on := map[string]map[string]bool{} // the interfaces of each node; "": all
	for _, name := range ads {
		ad := a.cluster.L2Advertisements[name]
		s.noPreempt = s.noPreempt || ad.NoPreempt
		for _, node := range a.nodes {
			labels := a.cluster.Nodes[node].Labels
			if !view.MatchesAny(ad.NodeSelectors, labels) {
				continue
			}
			if on[node] == nil {
				on[node] = map[string]bool{}
			}
			on[node][""] = on[node][""] || len(ad.Interfaces) == 0
			for _, name := range ad.Interfaces {
				on[node][name] = true
			}
			if weight := ad.Prefers(labels); weight > 0 {
				s.preferred[node] += weight
			}
			if node == a.options.Node {
				s.interval = shorter(s.interval, ad.AnnounceInterval)
			}
		}
	}
	s.nodes = slices.Sorted(maps.Keys(on))
	for _, node := range s.nodes {
		if !on[node][""] {
			s.named = append(s.named, node)
		}
	}
	if here := on[a.options.Node]; here != nil && !here[""] {
		delete(here, "")
		s.interfaces = slices.Sorted(maps.Keys(here))
	}
	most := 0
	for _, weight := range s.preferred {
		most = max(most, weight)
	}
	for _, node := range s.nodes {
		if s.preferred[node] == most {
			s.first = append(s.first, node)
		}
	}
	return s
}

// shorter is the shorter of two intervals, of which 0 means never.
func shorter(one, other time.Duration) time.Duration {
	if one == 0 || other == 0 {
		return max(one, other)
	}
	return min(one, other)
}

// bounded reports whether load is bounded: while the pods of all speakers say that they do it. Two that
// go by different orders would both answer for an address, or neither, as while a change of the Helm value
// is rolled out. All nodes see the same pods.
func bounded(c *view.Cluster) bool {
	for _, speaker := range c.Speakers {
		if !speaker.BoundsLoad {
			return false
		}
	}
	return len(c.Speakers) > 0
}

// place enters the address into the matching of those that may go to the same nodes. It stays there whether
// or not it can be served now, and by which nodes: a pod that restarts, or a node that is not ready,
// moves no address but its own.
func (a *announcer) place(address netip.Addr) {
	var among *election.Group
	if entry := a.addresses[address]; entry != nil && a.bounded {
		among = a.spread.Among(addr.FamilyOf(address), a.scopeOf(entry).first)
	}
	a.spread.Put(address, among)
}
