package view

import (
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
)

// PoolMatch says which addresses an advertisement is for: those of the named
// pools and of the pools with labels that one of Selectors matches. With neither, all.
type PoolMatch struct {
	Names     []string
	Selectors []Selector
}

// L2Advertisement is one fairlead.dev L2Advertisement. Empty selector lists match all.
type L2Advertisement struct {
	Name             string
	Pools            PoolMatch
	ServiceSelectors []Selector
	NodeSelectors    []Selector
	PreferredNodes   []Preference
	Interfaces       []string      // empty: every interface that suits the address
	AnnounceInterval time.Duration // at which an address is announced again; 0: never
	NoPreempt        bool          // a candidate that comes back does not take the address back
}

// Preference puts the nodes that it selects before others, by its weight from 1 to 100.
type Preference struct {
	Nodes  Selector
	Weight int
}

// Object is the advertisement as problems name it.
func (a *L2Advertisement) Object() problem.Object {
	return problem.Object{Kind: "L2Advertisement", Name: a.Name}
}

// Prefers is the sum of the weights of the preferences that match a node with these labels.
func (a *L2Advertisement) Prefers(labels map[string]string) int {
	sum := 0
	for _, p := range a.PreferredNodes {
		if p.Nodes.Matches(labels) {
			sum += p.Weight
		}
	}
	return sum
}

// BGPAdvertisement is one fairlead.dev BGPAdvertisement. Empty selector lists match all.
type BGPAdvertisement struct {
	Name             string
	Pools            PoolMatch
	ServiceSelectors []Selector
	NodeSelectors    []Selector
	Peers            []string // BGPPeer names; empty: every peer
	// AggregationLength is how long the prefixes are, of each family; 0: an address each.
	AggregationLength map[addr.Family]int
	LocalPref         uint32           // 0: not set
	MED               *uint32          // nil: not set
	Prepend           int              // how often our ASN stands in the path beyond once
	EndpointBandwidth uint32           // of each endpoint, in Mbit/s; 0: not told
	WithoutEndpoints  bool             // addresses too that no endpoint anywhere serves
	Communities       []uint32         // RFC 1997, sorted
	LargeCommunities  []LargeCommunity // sorted
	CommunityNames    []string         // of Communities; see Resolved
}

// Object is the advertisement as problems name it.
func (a *BGPAdvertisement) Object() problem.Object {
	return problem.Object{Kind: "BGPAdvertisement", Name: a.Name}
}

// IsFor reports whether it announces to the BGPPeer of that name.
func (a *BGPAdvertisement) IsFor(peer string) bool {
	return len(a.Peers) == 0 || slices.Contains(a.Peers, peer)
}
