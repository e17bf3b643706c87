package verify

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

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
