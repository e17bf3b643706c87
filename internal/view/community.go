package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/internal/problem"
)

// Community is one fairlead.dev Community: names, and what they stand for.
type Community struct {
	Name    string
	Created time.Time
	Values  map[string]CommunityValue
}

// Object is the Community as problems name it.
func (c *Community) Object() problem.Object { return problem.Object{Kind: "Community", Name: c.Name} }

// CommunityValue is a community of RFC 1997 or, where Large is not nil, of RFC 8092.
type CommunityValue struct {
	Standard uint32
	Large    *LargeCommunity
}

// Equal compares two by value.
func (v CommunityValue) Equal(o CommunityValue) bool {
	return v.Standard == o.Standard && (v.Large == nil) == (o.Large == nil) && (v.Large == nil || *v.Large == *o.Large)
}

// MostCommunityOctets is how many octets the communities of one route may take: a message of BGP has 4,096
// (RFC 4271, 4.1), and the rest is for all else that may be in one, with an ASN that is prepended 16 times.
const MostCommunityOctets = 3800

// CommunityOctets are how many octets so many communities take in a message, of RFC 1997 and of RFC 8092.
func CommunityOctets(standard, large int) int { return 4*standard + 12*large }

// LargeCommunity is one of RFC 8092.
type LargeCommunity struct{ Global, Local1, Local2 uint32 }

// Compare orders by the parts, the first one first.
func (l LargeCommunity) Compare(o LargeCommunity) int {
	return cmp.Or(cmp.Compare(l.Global, o.Global), cmp.Compare(l.Local1, o.Local1), cmp.Compare(l.Local2, o.Local2))
}

// CommunitiesByAge are all Communities, the oldest first, those of one age by name.
func (c *Cluster) CommunitiesByAge() []*Community {
	return slices.SortedFunc(maps.Values(c.Communities), func(a, b *Community) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
}

// Add adds a community to those of the advertisement.
func (a *BGPAdvertisement) Add(v CommunityValue) {
	if v.Large != nil {
		a.LargeCommunities = append(a.LargeCommunities, *v.Large)
	} else {
		a.Communities = append(a.Communities, v.Standard)
	}
}

// Resolved is the advertisement with what the names of communities in it stand for, of
// several that have one the oldest. unknown are the names that nothing has.
func (c *Cluster) Resolved(ad *BGPAdvertisement) (resolved *BGPAdvertisement, unknown []string) {
	if len(ad.CommunityNames) == 0 {
		return ad, nil
	}
	copied := *ad
	resolved = &copied
	resolved.CommunityNames = nil
	resolved.Communities, resolved.LargeCommunities = slices.Clone(ad.Communities), slices.Clone(ad.LargeCommunities)
	byAge := c.CommunitiesByAge()
	for _, name := range ad.CommunityNames {
		at := slices.IndexFunc(byAge, func(of *Community) bool { _, has := of.Values[name]; return has })
		if at < 0 {
			unknown = append(unknown, name)
			continue
		}
		resolved.Add(byAge[at].Values[name])
	}
	slices.Sort(resolved.Communities)
	slices.SortFunc(resolved.LargeCommunities, LargeCommunity.Compare)
	resolved.Communities = slices.Compact(resolved.Communities)
	resolved.LargeCommunities = slices.Compact(resolved.LargeCommunities)
	return resolved, unknown
}
