package allocation_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/view"
)

// labelled matches objects that have the label.
type labelled string

func (l labelled) Matches(labels map[string]string) bool { return labels[string(l)] != "" }

func with(p *view.Pool, change func(*view.Pool)) *view.Pool {
	change(p)
	return p
}

func in(namespace string) option { return func(s *view.Service) { s.Namespace = namespace } }

func carries(label string) option {
	return func(s *view.Service) { s.Labels = map[string]string{label: "yes"} }
}

// TestWhichPool: which of several pools gives, and which give nothing.
func TestWhichPool(t *testing.T) {
	t.Parallel()
	ranked := func(name string, priority int32, r string) *view.Pool {
		return with(pool(name, 1, r), func(p *view.Pool) { p.Priority = priority })
	}
	check(t, map[string]plan{
		"by priority, those without at last, equal ones by name": {
			pools: []*view.Pool{
				ranked("a", 0, "192.0.2.1/32"), ranked("b", 20, "192.0.2.2/32"), ranked("c", 20, "192.0.2.3/32"), ranked("d", 3, "192.0.2.4/32"),
			},
			services: []*view.Service{service("1", 1), service("2", 2), service("3", 3), service("4", 4)},
			want:     map[string]string{"1": "192.0.2.4", "2": "192.0.2.2", "3": "192.0.2.3", "4": "192.0.2.1"},
		},
		"those made for a Service before those for all": {
			pools: []*view.Pool{
				pool("all", 1, "192.0.2.0/24"),
				with(pool("front", 1, "198.51.100.0/24"), func(p *view.Pool) { p.ServiceSelectors = []view.Selector{labelled("front")} }),
			},
			services: []*view.Service{service("a", 1), service("b", 2, carries("front"))},
			want:     map[string]string{"a": "192.0.2.0", "b": "198.51.100.0"},
		},
		"namespaces and selectors of them add up, selectors of Services narrow": {
			pools: []*view.Pool{with(pool("p", 1, "192.0.2.0/24"), func(p *view.Pool) {
				p.Namespaces, p.NamespaceSelectors = []string{"shop"}, []view.Selector{labelled("tenant")}
				p.ServiceSelectors = []view.Selector{labelled("front")}
			})},
			services: []*view.Service{
				service("named", 1, in("shop"), carries("front")), service("selected", 2, in("rented"), carries("front")),
				service("elsewhere", 3, carries("front")), service("back", 4, in("shop")),
			},
			want:     map[string]string{"named": "192.0.2.0", "selected": "192.0.2.1", "elsewhere": "", "back": ""},
			problems: []string{"elsewhere NoPool", "back NoPool"},
		},
		"a pool for others is not had by asking, and what is held stays": {
			pools: []*view.Pool{with(pool("p", 1, "192.0.2.0/24"), func(p *view.Pool) { p.Namespaces = []string{"shop"} })},
			services: []*view.Service{
				service("a", 1, asksPool("p")), service("b", 2, asks("192.0.2.7")), service("c", 3, holds("192.0.2.9")),
			},
			want:     map[string]string{"a": "", "b": "", "c": "192.0.2.9"},
			problems: []string{"a PoolNotAllowed", "b PoolNotAllowed"},
		},
		"a disabled pool gives nothing, and takes nothing": {
			pools: []*view.Pool{with(pool("p", 1, "192.0.2.0/24"), func(p *view.Pool) { p.Disabled = true })},
			services: []*view.Service{
				service("a", 1), service("b", 2, asks("192.0.2.7")), service("c", 3, asksPool("p")), service("d", 4, holds("192.0.2.9")),
			},
			want:     map[string]string{"a": "", "b": "", "c": "", "d": "192.0.2.9"},
			problems: []string{"a NoPool", "b PoolDisabled", "c PoolDisabled"},
		},
	})
}

// TestQuota: a namespace has no more of a pool than it may, and loses nothing.
func TestQuota(t *testing.T) {
	t.Parallel()
	limited := func(most int) *view.Pool {
		return with(pool("p", 1, "192.0.2.0/24", "2001:db8::/64"), func(p *view.Pool) { p.MaxPerNamespace = most })
	}
	check(t, map[string]plan{
		"the next pool, or none": {
			pools:    []*view.Pool{limited(1), pool("q", 1, "198.51.100.1/32")},
			services: []*view.Service{service("a", 1), service("b", 2), service("c", 3, in("other")), service("d", 4)},
			want:     map[string]string{"a": "192.0.2.0", "b": "198.51.100.1", "c": "192.0.2.1", "d": ""},
			problems: []string{"d QuotaExceeded"},
		},
		"both families count, and none is had by asking": {
			pools: []*view.Pool{limited(2)},
			services: []*view.Service{
				service("a", 1, both, holds("2001:db8::", "192.0.2.0")), service("b", 2, asks("192.0.2.7")), service("c", 3, asksPool("p")),
			},
			want:     map[string]string{"a": "2001:db8:: 192.0.2.0", "b": "", "c": ""},
			problems: []string{"b QuotaExceeded", "c QuotaExceeded"},
		},
		"several at once": {
			pools:    []*view.Pool{limited(2)},
			services: []*view.Service{service("a", 1, asks("192.0.2.1", "192.0.2.2", "192.0.2.3"))},
			want:     map[string]string{"a": "192.0.2.1 192.0.2.2"},
			problems: []string{"a QuotaExceeded"},
		},
		"a shared one counts once": {
			pools:    []*view.Pool{limited(1)},
			services: []*view.Service{service("a", 1, shares("k", 80)), service("b", 2, shares("k", 443)), service("c", 3, shares("k", 53), asks("192.0.2.0"))},
			want:     map[string]string{"a": "192.0.2.0", "b": "192.0.2.0", "c": "192.0.2.0"},
		},
		"one for another is no more than before": {
			pools:    []*view.Pool{limited(1)},
			services: []*view.Service{service("a", 1, holds("192.0.2.1"), asks("192.0.2.2"))},
			want:     map[string]string{"a": "192.0.2.2"},
		},
		"what is given up counts as long as others have it": {
			pools: []*view.Pool{limited(1)},
			services: []*view.Service{
				service("a", 1, shares("k", 80), holds("192.0.2.1")), service("b", 2, shares("k", 443), holds("192.0.2.1"), asks("192.0.2.2")),
			},
			want:     map[string]string{"a": "192.0.2.1", "b": "192.0.2.1"},
			problems: []string{"b QuotaExceeded"},
		},
		"what is held stays above it": {
			pools:    []*view.Pool{limited(1)},
			services: []*view.Service{service("a", 1, holds("192.0.2.1")), service("b", 2, holds("192.0.2.2")), service("c", 3)},
			want:     map[string]string{"a": "192.0.2.1", "b": "192.0.2.2", "c": ""},
			problems: []string{"c QuotaExceeded"},
		},
	})
}

// TestCooling: a freed address is for nobody but who left it.
func TestCooling(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{small},
		service("a", 1), service("asks", 2, asks("192.0.2.11")), service("back", 3), service("b", 4))
	c.Cooling = map[netip.Addr]view.Ref{
		netip.MustParseAddr("192.0.2.10"): {Namespace: "default", Name: "gone"},
		netip.MustParseAddr("192.0.2.11"): {Namespace: "default", Name: "back"},
	}
	assigned, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
	addrs, reasons := told(assigned, problems)
	if d := cmp.Diff(map[string]string{"a": "192.0.2.12", "asks": "", "back": "192.0.2.11", "b": ""}, addrs); d != "" {
		t.Errorf("addresses (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"asks AddressCooling", "b PoolExhausted"}, reasons); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
	if got := allocation.Count(c, assigned)["small"]; got.IPv4.Assigned != 2 || got.IPv4.Available != 0 || got.IPv4.Total != 3 {
		t.Errorf("counted %+v", got)
	}
}

// TestLack: why a pool can give nothing.
func TestLack(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{
		pool("full", 1, "192.0.2.1/32", "2001:db8::/64"), pool("fine", 2, "198.51.100.0/24"), pool("empty", 3),
		pool("younger", 4, "198.51.100.0/25"), with(pool("off", 5, "203.0.113.0/24"), func(p *view.Pool) { p.Disabled = true }),
	}, service("a", 1, holds("192.0.2.1")))
	usage := allocation.Count(c, allocation.Assignments{})
	for name, want := range map[string]string{
		"full":    "IPAddressPool/full: PoolExhausted: no IPv4 address is free: add addresses",
		"fine":    "",
		"empty":   "IPAddressPool/empty: PoolExhausted: the pool has no addresses to give: look at spec.addresses",
		"younger": `IPAddressPool/younger: PoolOverlap: the pool gives no addresses while it overlaps pool "fine"`,
		"off":     "IPAddressPool/off: PoolDisabled: the pool gives no new addresses: spec.disabled is true",
	} {
		got := ""
		if lack := usage[name].Lack; lack != nil {
			got = lack.String()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestNamespaceNotSeenYet: where pools go by the labels of namespaces, who is of one that is not
// known gets nothing new, and loses nothing, until it is. Otherwise nobody waits.
func TestNamespaceNotSeenYet(t *testing.T) {
	t.Parallel()
	tenants := pool("tenants", 1, "192.0.2.0/24")
	tenants.NamespaceSelectors = []view.Selector{labelled("tenant")}
	all := pool("all", 1, "198.51.100.0/24")
	for name, test := range map[string]struct {
		pools     []*view.Pool
		known     map[string]map[string]string
		want      map[string]string // by name, "-": not decided
		available int64
	}{
		"not seen":           {[]*view.Pool{tenants, all}, nil, map[string]string{"new": "-", "old": "198.51.100.0", "moving": "-"}, 254},
		"seen":               {[]*view.Pool{tenants, all}, map[string]map[string]string{"default": {"tenant": "a"}}, map[string]string{"new": "192.0.2.0", "old": "198.51.100.0", "moving": "198.51.100.9"}, 254},
		"no pool goes by it": {[]*view.Pool{all}, nil, map[string]string{"new": "198.51.100.1", "old": "198.51.100.0", "moving": "198.51.100.9"}, 253},
	} {
		c := cluster(test.pools, service("new", 1), service("old", 2, holds("198.51.100.0")), service("moving", 3, holds("198.51.100.2"), asks("198.51.100.9")))
		c.Namespaces = test.known
		c.Changes = view.Changes{Revision: 1, Others: true}
		engine := allocation.NewEngine(view.Classes{})
		for range 2 {
			o := engine.Plan(c, allocation.Assignments{})
			got := map[string]string{"new": "-", "old": "-", "moving": "-"}
			for ref, a := range o.Assigned.Services {
				got[ref.Name] = a.Addresses[0].String()
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("%s: addresses (-want +got):\n%s", name, d)
			}
			if len(o.Problems) > 0 {
				t.Errorf("%s: problems %v", name, o.Problems)
			}
			if n := o.Usage["all"].IPv4.Available; n != test.available {
				t.Errorf("%s: %d addresses are free, want %d", name, n, test.available)
			}
		}
	}
}

// TestServiceRanges: what ClusterIPs are from is given to nobody, neither to join others
// on it nor to come back to it, and taken from nobody.
func TestServiceRanges(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{pool("p", 1, "192.0.2.0/29"), pool("inside", 2, "198.51.100.0/24")},
		service("a", 1), service("b", 2, asks("192.0.2.1")), service("c", 3, holds("192.0.2.2")),
		service("d", 4, holds("192.0.2.3"), shares("k", 80)), service("e", 5, shares("k", 443)),
		service("f", 6), service("g", 7, asksPool("inside")))
	c.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/30"), netip.MustParsePrefix("198.51.0.0/16")}
	c.Cooling = map[netip.Addr]view.Ref{netip.MustParseAddr("192.0.2.0"): {Namespace: "default", Name: "f"}}
	assigned, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
	addrs, reasons := told(assigned, problems)
	want := map[string]string{
		"a": "192.0.2.4", "b": "", "c": "192.0.2.2", "d": "192.0.2.3", "e": "192.0.2.5", "f": "192.0.2.6", "g": "",
	}
	if d := cmp.Diff(want, addrs); d != "" {
		t.Errorf("addresses (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"b RequestUnusable", "c AddressInUse", "d AddressInUse", "g PoolExhausted"}, reasons); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
	usage := allocation.Count(c, assigned)
	if got := usage["p"]; got.IPv4.Assigned != 5 || got.IPv4.Available != 1 || got.IPv4.Total != 4 || got.Lack != nil {
		t.Errorf("counted %+v", got)
	}
	if got := usage["inside"]; got.IPv4.Available != 0 || got.IPv4.Total != 0 || got.Lack == nil {
		t.Errorf("of a pool within the range, counted %+v", got)
	}
}
