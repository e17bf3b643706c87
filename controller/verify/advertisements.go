package verify

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
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

// beyond finds pools of an advertisement that end within an aggregate: a route to all of
// it would draw the traffic of addresses outside the pool. One per pool is reported.
func beyond(r *reach, object problem.Object, ad *view.BGPAdvertisement) {
	for _, p := range slices.SortedFunc(maps.Values(r.cluster.Pools), func(a, b *view.Pool) int { return cmp.Compare(a.Name, b.Name) }) {
		if !ad.Pools.Matches(p) {
			continue
		}
		if whole, found := divided(ad, p); found {
			field := "aggregationLength"
			if whole.Addr().Is6() {
				field = "aggregationLengthV6"
			}
			r.advise(object, ReasonAggregateBeyondPool,
				"spec.%s: IPAddressPool %q holds only a part of %s, so its addresses there are announced one by one: "+
					"give the pool all of it, or ask for longer prefixes", field, p.Name, whole)
		}
	}
}

// divided is the first aggregate of which the pool holds a part only. Where a range
// begins and ends decides, since aggregates between are whole.
func divided(ad *view.BGPAdvertisement, p *view.Pool) (netip.Prefix, bool) {
	for _, r := range p.Ranges {
		for _, end := range []netip.Addr{r.From(), r.To()} {
			length := ad.AggregationLength[addr.FamilyOf(end)]
			if length > 0 && length < end.BitLen() && ad.Aggregate(end, p).IsSingleIP() {
				return netip.PrefixFrom(end, length).Masked(), true
			}
		}
	}
	return netip.Prefix{}, false
}

// nameless are the names of communities in an advertisement that nothing has.
func nameless(r *reach, object problem.Object, names []string) {
	for _, name := range names {
		r.add(object, ReasonCommunityNotFound,
			"spec.communities: no Community has the name %q, so that nothing is announced by this advertisement: add it to one, or correct it", name)
	}
}

// ambiguous finds names of communities that an older Community has for another value.
func ambiguous(r *reach) {
	owners := map[string]*view.Community{}
	for _, community := range r.cluster.CommunitiesByAge() {
		for _, name := range slices.Sorted(maps.Keys(community.Values)) {
			owner := owners[name]
			switch {
			case owner == nil:
				owners[name] = community
			case !owner.Values[name].Equal(community.Values[name]):
				r.advise(community.Object(), ReasonCommunityDuplicate,
					"spec.communities: the name %q is that of Community %q, which is older and has another value for it, which is used: remove one of the two", name, owner.Name)
			}
		}
	}
}
