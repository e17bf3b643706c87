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
	layer2 := slices.Sorted(maps.Keys(c.L2Advertisements))
	bgp := slices.Sorted(maps.Keys(c.BGPAdvertisements))
	reach := newReach(c)
	vain := map[string]string{} // why an advertisement covers nothing at all
	for _, name := range layer2 {
		vain["L2Advertisement "+name] = reach.vainLayer2(c.L2Advertisements[name])
	}
	for _, name := range bgp {
		why := reach.vainBGP(c.BGPAdvertisements[name])
		if len(reach.unknown[name]) > 0 {
			why = "is not in use: see its condition Ready"
		}
		vain["BGPAdvertisement "+name] = why
	}
	uncovered := map[string]problem.Problem{}
	for name, pool := range c.Pools {
		var matching []string
		for _, ad := range layer2 {
			if c.L2Advertisements[ad].Pools.Matches(pool) {
				matching = append(matching, "L2Advertisement "+ad)
			}
		}
		for _, ad := range bgp {
			if c.BGPAdvertisements[ad].Pools.Matches(pool) {
				matching = append(matching, "BGPAdvertisement "+ad)
			}
		}
		if !slices.ContainsFunc(matching, func(ad string) bool { return vain[ad] == "" }) {
			uncovered[name] = problem.Advice(pool.Object(), ReasonNoAdvertisement, "%s", without(matching, vain))
		}
	}
	return uncovered
}

// without tells of the advertisements that match a pool, all in vain.
func without(matching []string, vain map[string]string) string {
	if len(matching) == 0 {
		return "no L2Advertisement and no BGPAdvertisement covers the pool: create one, or name the pool in spec.ipAddressPools of one"
	}
	const most = 3
	var why []string
	for _, ad := range matching[:min(most, len(matching))] {
		why = append(why, ad+" "+vain[ad])
	}
	if more := len(matching) - most; more > 0 {
		why = append(why, fmt.Sprintf("and %d more", more))
	}
	return "no node goes by an advertisement that covers the pool: " + strings.Join(why, "; ")
}
