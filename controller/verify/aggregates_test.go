package verify_test

import (
	"testing"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

func TestAggregatesThatAPoolDoesNotHold(t *testing.T) {
	t.Parallel()
	pool := func(name string, texts ...string) *view.Pool {
		p := &view.Pool{Name: name}
		for _, text := range texts {
			p.Ranges = append(p.Ranges, netipx.MustParseIPRange(text))
		}
		return p
	}
	c := &view.Cluster{
		Pools: map[string]*view.Pool{
			"begins-late": pool("begins-late", "192.0.2.1-192.0.2.255", "2001:db8::-2001:db8::ffff:ffff:ffff:ffff"),
			"ends-early":  pool("ends-early", "198.51.100.0-198.51.101.9"),
			"six":         pool("six", "2001:db8:1::-2001:db8:1::ff"),
			"whole":       pool("whole", "203.0.113.0-203.0.113.255"),
			"not-meant":   pool("not-meant", "10.0.0.1-10.0.0.9"),
		},
		BGPAdvertisements: map[string]*view.BGPAdvertisement{
			"ad": {
				Name: "ad", Pools: view.PoolMatch{Names: []string{"begins-late", "ends-early", "six", "whole"}},
				AggregationLength: map[addr.Family]int{addr.IPv4: 24, addr.IPv6: 64},
			},
			"alone": {Name: "alone", AggregationLength: map[addr.Family]int{addr.IPv4: 32, addr.IPv6: 128}},
			"plain": {Name: "plain"},
		},
	}
	message := func(field, pool, part string) string {
		return "BGPAdvertisement/ad: AggregateBeyondPool: spec." + field + ": IPAddressPool \"" + pool + "\" holds only a part of " + part +
			", so its addresses there are announced one by one: give the pool all of it, or ask for longer prefixes"
	}
	want := []string{
		message("aggregationLength", "begins-late", "192.0.2.0/24"),
		message("aggregationLength", "ends-early", "198.51.101.0/24"),
		message("aggregationLengthV6", "six", "2001:db8:1::/64"),
	}
	isAdvice(t, check(c), want)
}
