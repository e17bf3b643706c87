package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// ReasonNoAdvertisement is on a pool that no advertisement covers, or none that a node goes by.
const ReasonNoAdvertisement = "NoAdvertisement"

// Uncovered has a problem of each pool that no node announces addresses of, whichever Service
// has them. Which Services an advertisement chooses is not looked at.
func Uncovered(c *view.Cluster) map[string]problem.Problem {
	reach := newReach(c)
	var all []covering
	for _, name := range slices.Sorted(maps.Keys(c.L2Advertisements)) {
		ad := c.L2Advertisements[name]
		all = append(all, covering{"L2Advertisement " + name, ad.Pools, reach.vainLayer2(ad)})
	}
	for _, name := range slices.Sorted(maps.Keys(c.BGPAdvertisements)) {
		ad := c.BGPAdvertisements[name]
		why := reach.vainBGP(ad)
		if len(reach.unknown[name]) > 0 {
			why = "is not in use: see its condition Ready"
		}
		all = append(all, covering{"BGPAdvertisement " + name, ad.Pools, why})
	}
	uncovered := map[string]problem.Problem{}
	for name, pool := range c.Pools {
		matching := slices.DeleteFunc(slices.Clone(all), func(ad covering) bool { return !ad.pools.Matches(pool) })
		if !slices.ContainsFunc(matching, func(ad covering) bool { return ad.vain == "" }) {
			uncovered[name] = problem.Advice(pool.Object(), ReasonNoAdvertisement, "%s", without(matching))
		}
	}
	return uncovered
}

// covering is an advertisement, and why it covers nothing at all; "" if it does.
type covering struct {
	name  string
	pools view.PoolMatch
	vain  string
}

// without tells of the advertisements that match a pool, all in vain.
func without(matching []covering) string {
	if len(matching) == 0 {
		return "no L2Advertisement and no BGPAdvertisement covers the pool: create one, or name the pool in spec.ipAddressPools of one"
	}
	const most = 3
	var why []string
	for _, ad := range matching[:min(most, len(matching))] {
		why = append(why, ad.name+" "+ad.vain)
	}
	if more := len(matching) - most; more > 0 {
		why = append(why, fmt.Sprintf("and %d more", more))
	}
	return "no node goes by an advertisement that covers the pool: " + strings.Join(why, "; ")
}
