package verify

import (
	"maps"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// The reasons of problems of what is set and has no effect, all of which are advice.
const (
	// ReasonFieldUnused: a field is set, and what else there is leaves it without effect.
	ReasonFieldUnused = "FieldUnused"
	// ReasonUnused: nothing names the object.
	ReasonUnused = "Unused"
)

// spare finds BFDProfiles and Communities that nothing names.
func spare(r *reach) {
	c := r.cluster
	named := map[string]bool{}
	for _, p := range c.BGPPeers {
		named[p.BFDProfile] = true
	}
	for _, p := range c.BFDProfiles {
		if !named[p.Name] {
			r.advise(p.Object(), ReasonUnused, "no BGPPeer names it in spec.bfdProfile")
		}
		if p.EchoInterval {
			r.advise(p.Object(), ReasonFieldUnused,
				"spec.echoInterval: has no effect, as the echo function is not supported: leave it out, and make transmitInterval and receiveInterval as short")
		}
	}
	called := map[string]bool{}
	for _, ad := range c.BGPAdvertisements {
		for _, name := range ad.CommunityNames {
			called[name] = true
		}
	}
	for _, community := range c.Communities {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(community.Values)), func(name string) bool { return called[name] }) {
			r.advise(community.Object(), ReasonUnused, "no BGPAdvertisement has one of its names in spec.communities")
		}
	}
}

// idle finds fields of a BGPAdvertisement that have no effect on any route.
func idle(r *reach, object problem.Object, ad *view.BGPAdvertisement) {
	unused := func(format string, args ...any) {
		r.advise(object, ReasonFieldUnused, format, args...)
	}
	var internal, external bool
	for _, p := range r.of(ad) {
		internal, external = internal || p.MyASN == p.PeerASN, external || p.MyASN != p.PeerASN
	}
	if ad.LocalPref != 0 && external && !internal {
		unused("spec.localPref: is sent to iBGP peers only, and this is announced to none: leave it out, and have med, asPathPrepend or communities say which routes are preferred")
	}
	if ad.Prepend != 0 && internal && !external {
		unused("spec.asPathPrepend: is done towards eBGP peers only, and this is announced to none: leave it out, and have localPref say which routes are preferred")
	}
	for _, family := range addr.Families() {
		field := map[addr.Family]string{addr.IPv4: "aggregationLength", addr.IPv6: "aggregationLengthV6"}[family]
		if length := ad.AggregationLength[family]; length > 0 && length < family.Bits() && lacks(r.cluster, ad.Pools, family) {
			unused("spec.%s: no IPAddressPool that this is for has %v addresses: leave it out, or correct the pools", field, family)
		}
	}
	overruled(r, object, ad)
}

// lacks reports whether there are such pools, and none has addresses of the family.
func lacks(c *view.Cluster, match view.PoolMatch, family addr.Family) bool {
	some := false
	for _, p := range c.Pools {
		if !match.Matches(p) {
			continue
		}
		some = true
		for _, ranges := range p.Ranges {
			if addr.FamilyOf(ranges.From()) == family {
				return false
			}
		}
	}
	return some
}

// overruled finds fields of which another advertisement says what routers like better, of all
// that this one announces. Where it does of a part only, each has its effect.
func overruled(r *reach, object problem.Object, ad *view.BGPAdvertisement) {
	told := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(r.cluster.BGPAdvertisements)) {
		other := r.cluster.BGPAdvertisements[name]
		fields := slices.DeleteFunc(losing(ad, other), func(field string) bool { return told[field] })
		if len(fields) == 0 || !r.covers(other, ad) {
			continue
		}
		for _, field := range fields {
			told[field] = true
			r.advise(object, ReasonFieldUnused,
				"spec.%s: BGPAdvertisement %q is for the same addresses, nodes and peers, and that of its routes counts, which routers like better: leave it out of one of the two", field, name)
		}
	}
}

// losing are the fields of which both say something, and routers like the other's better.
func losing(ad, other *view.BGPAdvertisement) []string {
	var fields []string
	if ad.LocalPref != 0 && other.LocalPref > ad.LocalPref {
		fields = append(fields, "localPref")
	}
	if ad.MED != nil && other.MED != nil && *other.MED < *ad.MED {
		fields = append(fields, "med")
	}
	if other.Prepend != 0 && other.Prepend < ad.Prepend {
		fields = append(fields, "asPathPrepend")
	}
	if ad.EndpointBandwidth != 0 && other.EndpointBandwidth > ad.EndpointBandwidth {
		fields = append(fields, "linkBandwidthPerEndpoint")
	}
	return fields
}

// covers reports whether all routes of an advertisement are the other's as well.
func (r *reach) covers(other, ad *view.BGPAdvertisement) bool {
	if len(r.unknown[other.Name]) > 0 || len(other.ServiceSelectors) > 0 || ad.WithoutEndpoints && !other.WithoutEndpoints {
		return false
	}
	if slices.ContainsFunc(addr.Families(), func(f addr.Family) bool { return lengthOf(ad, f) != lengthOf(other, f) }) {
		return false
	}
	for _, p := range r.cluster.Pools {
		if ad.Pools.Matches(p) && !other.Pools.Matches(p) {
			return false
		}
	}
	nodes := r.chosen(other.NodeSelectors)
	for i, from := range r.chosen(ad.NodeSelectors) {
		if from && !nodes[i] {
			return false
		}
	}
	return !slices.ContainsFunc(r.of(ad), func(p *view.BGPPeer) bool {
		return !other.IsFor(p.Name)
	})
}

// lengthOf is how long the prefixes of a family are.
func lengthOf(ad *view.BGPAdvertisement, family addr.Family) int {
	if length := ad.AggregationLength[family]; length > 0 {
		return length
	}
	return family.Bits()
}
