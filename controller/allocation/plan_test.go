package allocation_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// plan is one state and what is planned for it.
type plan struct {
	pools    []*view.Pool
	services []*view.Service
	booked   []*view.Reservation
	cooling  map[string]string // addresses, and in the namespace default who left them
	want     map[string]string // addresses by name
	problems []string          // "object reason"
}

func check(t *testing.T, plans map[string]plan) {
	t.Helper()
	for name, tt := range plans {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(tt.pools, tt.services...)
			c.Namespaces = map[string]map[string]string{"default": nil, "rented": {"tenant": "a"}, "shop": {}}
			for _, r := range tt.booked {
				c.Reservations[r.Ref] = r
			}
			for a, name := range tt.cooling {
				c.Cooling[netip.MustParseAddr(a)] = view.Ref{Namespace: "default", Name: name}
			}
			assigned, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
			addrs, reasons := told(assigned, problems)
			if d := cmp.Diff(tt.want, addrs); d != "" {
				t.Errorf("addresses (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.problems, reasons); d != "" {
				t.Errorf("problems (-want +got):\n%s\n%v", d, problems)
			}
		})
	}
}

// TestOrder: who chooses first, and what is chosen.
func TestOrder(t *testing.T) {
	t.Parallel()
	check(t, map[string]plan{
		"the lowest free address, older Services first": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("young", 9), service("old", 1), service("holder", 5, holds("192.0.2.10"))},
			want:     map[string]string{"old": "192.0.2.11", "young": "192.0.2.12", "holder": "192.0.2.10"},
		},
		"named addresses before all others": {
			pools: []*view.Pool{pool("p", 1, "192.0.2.8/29")},
			services: []*view.Service{
				service("any", 1), service("names", 2, asks("192.0.2.8")), service("holder", 3, holds("192.0.2.11")),
				service("names what is reserved", 4, asks("192.0.2.10")),
			},
			booked: bookings(booking("counts", 5, anyOf(1)), booking("lists", 6, these("192.0.2.10"))),
			want: map[string]string{
				"any": "192.0.2.12", "names": "192.0.2.8", "counts": "192.0.2.9", "lists": "192.0.2.10",
				"names what is reserved": "192.0.2.10", "holder": "192.0.2.11",
			},
		},
		"equal age: by name": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("b", 1), service("a", 1)},
			want:     map[string]string{"a": "192.0.2.10", "b": "192.0.2.11"},
		},
	})
}

// TestHeld: what is held stays, unless an older Service holds it too.
func TestHeld(t *testing.T) {
	t.Parallel()
	check(t, map[string]plan{
		"other types, other classes and the dying are left alone, and keep what they show": {
			pools: []*view.Pool{small},
			services: []*view.Service{
				service("cluster", 1, func(s *view.Service) { s.Type = view.ClusterIP }),
				service("other", 2, holds("192.0.2.10"), func(s *view.Service) { s.Class = "example.com/other" }),
				service("dying", 3, holds("192.0.2.11"), func(s *view.Service) { s.Deleting = true }),
				service("ours", 0),
			},
			want: map[string]string{"ours": "192.0.2.12"},
		},
		"held stays when no pool has it any more": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, holds("198.51.100.1"))},
			want:     map[string]string{"a": "198.51.100.1"},
			problems: []string{"a OutsidePools"},
		},
		"held stays when its pool gives no more": {
			pools:    []*view.Pool{manual(pool("m", 1, "192.0.2.1/32"))},
			services: []*view.Service{service("a", 1, holds("192.0.2.1"))},
			want:     map[string]string{"a": "192.0.2.1"},
		},
		"held stays when its pool avoids it by now": {
			pools: []*view.Pool{avoiding(pool("edited", 1, "198.51.100.0/24", "2001:db8::/64")), pool("other", 2, "203.0.113.0/24")},
			services: []*view.Service{
				service("a", 1, holds("198.51.100.0")), service("b", 2, dual, holds("198.51.100.255", "2001:db8::")),
				service("c", 3, holds("198.51.100.1")), service("d", 4, holds("203.0.113.0")),
			},
			want:     map[string]string{"a": "198.51.100.0", "b": "198.51.100.255 2001:db8::", "c": "198.51.100.1", "d": "203.0.113.0"},
			problems: []string{"a AddressAvoided", "b AddressAvoided"},
		},
		"held twice: the younger moves": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("young", 2, holds("192.0.2.10")), service("old", 1, holds("192.0.2.10"))},
			want:     map[string]string{"old": "192.0.2.10", "young": "192.0.2.11"},
			problems: []string{"young AddressDuplicate"},
		},
	})
}

// TestFamilies: which families a Service gets addresses of.
func TestFamilies(t *testing.T) {
	t.Parallel()
	check(t, map[string]plan{
		"no pool of the family": {
			pools:    []*view.Pool{six, manual(pool("m", 3, "192.0.2.1/32"))},
			services: []*view.Service{service("a", 1)},
			want:     map[string]string{"a": ""},
			problems: []string{"a NoPool"},
		},
		"a family that is no longer wanted goes": {
			pools:    []*view.Pool{small, six},
			services: []*view.Service{service("a", 1, holds("192.0.2.10", "2001:db8::"))},
			want:     map[string]string{"a": "192.0.2.10"},
		},
		"both families in the order of the status, whoever wrote it": {
			pools: []*view.Pool{small, six},
			services: []*view.Service{
				service("plain", 1, both, holds("192.0.2.10", "2001:db8::7")),
				service("asks", 2, both, holds("192.0.2.11", "2001:db8::8"), asks("2001:db8::8", "192.0.2.11")),
				service("asks for another", 3, both, holds("192.0.2.12", "2001:db8::9"), asks("2001:db8::a")),
			},
			want: map[string]string{"plain": "192.0.2.10 2001:db8::7", "asks": "192.0.2.11 2001:db8::8", "asks for another": "2001:db8::a 192.0.2.12"},
		},
		"of one family, the order of the request": {
			pools:    []*view.Pool{small, six},
			services: []*view.Service{service("a", 1, both, holds("192.0.2.10", "2001:db8::7", "192.0.2.11"), asks("192.0.2.11", "2001:db8::7", "192.0.2.10"))},
			want:     map[string]string{"a": "2001:db8::7 192.0.2.11 192.0.2.10"},
		},
		"both families, from two pools, primary first": {
			pools:    []*view.Pool{small, six},
			services: []*view.Service{service("a", 1, both)},
			want:     map[string]string{"a": "2001:db8:: 192.0.2.10"},
		},
		"RequireDualStack: both or nothing": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, both), service("b", 2)},
			want:     map[string]string{"a": "", "b": "192.0.2.10"},
			problems: []string{"a NoPool"},
		},
		"RequireDualStack keeps the one it has": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, both, holds("192.0.2.11"))},
			want:     map[string]string{"a": "192.0.2.11"},
			problems: []string{"a NoPool"},
		},
		"PreferDualStack makes do with either": {
			pools:    []*view.Pool{six},
			services: []*view.Service{service("a", 1, dual)},
			want:     map[string]string{"a": "2001:db8::"},
			problems: []string{"a FamilyMissing"},
		},
		"PreferDualStack gets its second family when it appears": {
			pools:    []*view.Pool{small, six},
			services: []*view.Service{service("a", 1, dual, holds("192.0.2.12"))},
			want:     map[string]string{"a": "192.0.2.12 2001:db8::"},
		},
		"both families from one network, whatever the names and the order of the families": {
			pools: []*view.Pool{small, six, pool("z", 3, "198.51.100.0/31", "2001:db8:1::/127")},
			services: []*view.Service{
				service("a", 1, both), service("b", 2, dual),
				service("c", 3, dual), // z is full
				service("d", 4),
			},
			want: map[string]string{
				"a": "2001:db8:1:: 198.51.100.0", "b": "198.51.100.1 2001:db8:1::1", "c": "192.0.2.10 2001:db8::", "d": "192.0.2.11",
			},
		},
		"a network in which one family is all given is none of both": {
			pools:    []*view.Pool{small, six, pool("z", 3, "198.51.100.0/32", "2001:db8:1::/64")},
			services: []*view.Service{service("holder", 1, holds("198.51.100.0")), service("a", 2, both)},
			want:     map[string]string{"holder": "198.51.100.0", "a": "2001:db8:: 192.0.2.10"},
		},
		"the second family from the network of the first": {
			pools: []*view.Pool{small, pool("a", 3, "2001:db8:1::/64"), pool("z", 4, "198.51.100.0/24", "2001:db8:2::/64"), pool("b", 5, "203.0.113.0/24", "2001:db8:3::/64")},
			services: []*view.Service{
				service("has", 1, dual, holds("198.51.100.7")),
				service("has the other", 2, families(view.PreferDualStack, addr.IPv4, addr.IPv6), holds("2001:db8:3::7")),
				service("asks", 3, both, asks("198.51.100.9")),
				service("has one that is alone", 4, dual, holds("192.0.2.10")),
			},
			want: map[string]string{
				"has": "198.51.100.7 2001:db8:2::1", "has the other": "203.0.113.0 2001:db8:3::7",
				"asks": "2001:db8:2:: 198.51.100.9", "has one that is alone": "192.0.2.10 2001:db8:1::",
			},
		},
		"a rank comes before a network of both families": {
			pools: []*view.Pool{
				six, pool("z", 3, "198.51.100.0/24", "2001:db8:1::/64"),
				with(pool("first", 4, "192.0.2.0/24"), func(p *view.Pool) { p.Priority = 1 }),
			},
			services: []*view.Service{service("a", 1, dual)},
			want:     map[string]string{"a": "192.0.2.0 2001:db8::"},
		},
		"a network of which the quota leaves one address is none of both": {
			pools:    []*view.Pool{small, six, with(pool("z", 3, "198.51.100.0/24", "2001:db8:1::/64"), func(p *view.Pool) { p.MaxPerNamespace = 3 })},
			services: []*view.Service{service("a", 1, dual), service("b", 2, dual)},
			want:     map[string]string{"a": "198.51.100.0 2001:db8:1::", "b": "192.0.2.10 2001:db8::"},
		},
		"one that is asked for, or not for this Service, is no network for it": {
			pools: []*view.Pool{
				small, six, manual(pool("x", 3, "198.51.100.0/24", "2001:db8:1::/64")),
				with(pool("y", 4, "203.0.113.0/24", "2001:db8:2::/64"), func(p *view.Pool) { p.Namespaces = []string{"shop"} }),
			},
			services: []*view.Service{service("a", 1, dual)},
			want:     map[string]string{"a": "192.0.2.10 2001:db8::"},
		},
		"PreferDualStack without anything": {
			services: []*view.Service{service("a", 1, dual)},
			want:     map[string]string{"a": ""},
			problems: []string{"a NoPool", "a NoPool"},
		},
	})
}

// TestRequests: what users ask for, and what they get when it cannot be.
func TestRequests(t *testing.T) {
	t.Parallel()
	check(t, map[string]plan{
		"a request from a pool that must be asked": {
			pools:    []*view.Pool{small, manual(pool("m", 2, "198.51.100.0/24"))},
			services: []*view.Service{service("a", 1, asks("198.51.100.7"))},
			want:     map[string]string{"a": "198.51.100.7"},
		},
		"a changed request moves the Service": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, holds("192.0.2.10"), asks("192.0.2.12"))},
			want:     map[string]string{"a": "192.0.2.12"},
		},
		"an address is free only once its holder shows it no more": {
			pools: []*view.Pool{small},
			services: []*view.Service{
				service("a", 1, holds("192.0.2.10"), asks("192.0.2.12")),
				service("b", 2, asks("192.0.2.10")),
			},
			want:     map[string]string{"a": "192.0.2.12", "b": ""},
			problems: []string{"b RequestTaken"},
		},
		"requests that cannot be met, and what is kept meanwhile": {
			pools: []*view.Pool{small, avoiding(pool("avoiding", 2, "198.51.100.0/24"))},
			services: []*view.Service{
				service("outside", 1, asks("203.0.113.1"), holds("192.0.2.10")),
				service("taken", 2, asks("192.0.2.10")),
				service("buggy", 3, asks("198.51.100.255")),
				service("family", 4, asks("2001:db8::1")),
				service("elsewhere", 6, asks("192.0.2.12"), asksPool("avoiding")),
				service("nowhere", 7, asks("192.0.2.12"), asksPool("missing")),
			},
			want: map[string]string{
				"outside": "192.0.2.10", "taken": "", "buggy": "", "family": "",
				"elsewhere": "", "nowhere": "",
			},
			problems: []string{
				"buggy RequestUnusable", "elsewhere RequestOutsidePools", "family RequestFamily",
				"nowhere PoolNotFound", "outside RequestOutsidePools", "taken RequestTaken",
			},
		},
		"an address is requested for one family; the other is chosen": {
			pools:    []*view.Pool{small, six},
			services: []*view.Service{service("a", 1, both, asks("192.0.2.12"))},
			want:     map[string]string{"a": "2001:db8:: 192.0.2.12"},
		},
		"addresses of another family alone: nothing new, nothing lost": {
			pools: []*view.Pool{small, with(pool("edited", 3, "198.51.100.0/25"), func(p *view.Pool) {
				p.Former, p.Renumber = pool("", 0, "198.51.100.0/24").Ranges, true
			})},
			services: []*view.Service{
				service("has", 1, asks("2001:db8::1"), holds("192.0.2.11")),
				service("has of another pool", 2, asks("2001:db8::1"), asksPool("edited"), holds("192.0.2.12")),
				service("has what is renumbered", 3, asks("2001:db8::1"), holds("198.51.100.200")),
				service("has two", 4, asks("2001:db8::1", "2001:db8::2"), holds("198.51.100.8", "198.51.100.7")),
				service("has the other family", 5, asks("2001:db8::1"), holds("2001:db8::1")),
				service("asks for a pool", 6, asks("2001:db8::1"), asksPool("small")),
				service("would take what there is", 7, families(view.PreferDualStack, addr.IPv4), asks("2001:db8::1")),
			},
			want: map[string]string{
				"has": "192.0.2.11", "has of another pool": "192.0.2.12", "has what is renumbered": "198.51.100.200", "has two": "198.51.100.8",
				"has the other family": "", "asks for a pool": "", "would take what there is": "",
			},
			problems: []string{
				"asks for a pool RequestFamily", "has RequestFamily", "has of another pool RequestFamily", "has the other family RequestFamily",
				"has two RequestFamily", "has two RequestFamily", "has what is renumbered RequestFamily", "has what is renumbered AddressDropped",
				"would take what there is RequestFamily",
			},
		},
		"addresses of one family and of another that the Service does not have: what it can have": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, asks("2001:db8::1", "192.0.2.12"))},
			want:     map[string]string{"a": "192.0.2.12"},
			problems: []string{"a RequestFamily"},
		},
		"PreferDualStack asks for an address of one family: the other is chosen": {
			pools:    []*view.Pool{small, six},
			services: []*view.Service{service("a", 1, dual, asks("2001:db8::7"))},
			want:     map[string]string{"a": "192.0.2.10 2001:db8::7"},
		},
		"several addresses of one family": {
			pools:    []*view.Pool{small, six},
			services: []*view.Service{service("a", 1, both, asks("192.0.2.12", "2001:db8::7", "192.0.2.10", "2001:db8::6"))},
			want:     map[string]string{"a": "2001:db8::7 2001:db8::6 192.0.2.12 192.0.2.10"},
		},
		"one of several cannot be had: the rest is given, and what there was stays": {
			pools: []*view.Pool{small},
			services: []*view.Service{
				service("other", 1, holds("192.0.2.10")),
				service("a", 2, holds("192.0.2.11"), asks("192.0.2.10", "192.0.2.12")),
			},
			want:     map[string]string{"other": "192.0.2.10", "a": "192.0.2.12 192.0.2.11"},
			problems: []string{"a RequestTaken"},
		},
		"all of several can be had: the rest goes": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 2, holds("192.0.2.12", "192.0.2.11"), asks("192.0.2.10", "192.0.2.12"))},
			want:     map[string]string{"a": "192.0.2.10 192.0.2.12"},
		},
		"without the request, one of several stays": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 2, holds("192.0.2.12", "192.0.2.11"))},
			want:     map[string]string{"a": "192.0.2.12"},
		},
		"RequireDualStack is not served by two of one family": {
			pools:    []*view.Pool{small},
			services: []*view.Service{service("a", 1, both, asks("192.0.2.10", "192.0.2.11"))},
			want:     map[string]string{"a": ""},
			problems: []string{"a NoPool"},
		},
		"what is asked for in two places is told": {
			pools: []*view.Pool{small},
			services: []*view.Service{
				service("a", 1, asks("192.0.2.10"), func(s *view.Service) { s.Request.Conflicts = []string{"this and that"} }),
			},
			want:     map[string]string{"a": "192.0.2.10"},
			problems: []string{"a RequestConflict"},
		},
		"each family from the first of the named pools that can": {
			pools: []*view.Pool{manual(pool("four", 1, "192.0.2.1/32")), manual(pool("more", 2, "198.51.100.1/32")), manual(pool("v6", 3, "2001:db8::/64"))},
			services: []*view.Service{
				service("a", 1, both, asksPool("four", "v6", "more")),
				service("b", 2, both, asksPool("four", "v6", "more")),
				service("c", 3, asksPool("four", "v6")),
				service("d", 4, asksPool("v6", "missing")),
			},
			want:     map[string]string{"a": "2001:db8:: 192.0.2.1", "b": "2001:db8::1 198.51.100.1", "c": "", "d": ""},
			problems: []string{"c PoolExhausted", "d PoolNotFound"},
		},
		"a request that cannot be read: nothing new, nothing lost": {
			pools: []*view.Pool{small},
			services: []*view.Service{
				service("a", 1, holds("192.0.2.12", "192.0.2.11"), func(s *view.Service) { s.Request.Invalid = &invalid }),
			},
			want:     map[string]string{"a": "192.0.2.12 192.0.2.11"},
			problems: []string{"a InvalidRequest"},
		},
		"a requested pool": {
			pools:    []*view.Pool{small, manual(pool("m", 2, "198.51.100.1/32"))},
			services: []*view.Service{service("a", 1, asksPool("m")), service("b", 2, asksPool("m")), service("c", 3, asksPool("x"))},
			want:     map[string]string{"a": "198.51.100.1", "b": "", "c": ""},
			problems: []string{"b PoolExhausted", "c PoolNotFound"},
		},
		"asking for another pool moves the Service": {
			pools:    []*view.Pool{small, pool("other", 2, "198.51.100.1/32")},
			services: []*view.Service{service("a", 1, holds("192.0.2.10"), asksPool("other"))},
			want:     map[string]string{"a": "198.51.100.1"},
		},
		"asking for a pool moves who has an address that nobody announces": {
			pools: []*view.Pool{small, manual(pool("other", 2, "198.51.100.1/32"))},
			services: []*view.Service{
				service("a", 1, holds("203.0.113.1"), asksPool("other")), service("b", 2, holds("203.0.113.2"), asksPool("small")),
			},
			want: map[string]string{"a": "198.51.100.1", "b": "192.0.2.10"},
		},
		"who asks for a pool in vain keeps an address that nobody announces": {
			pools: []*view.Pool{manual(pool("full", 2, "198.51.100.1/32"))},
			services: []*view.Service{
				service("holder", 1, holds("198.51.100.1")),
				service("a", 2, holds("203.0.113.1"), asksPool("full")), service("b", 3, holds("203.0.113.2"), asksPool("gone")),
			},
			want:     map[string]string{"holder": "198.51.100.1", "a": "203.0.113.1", "b": "203.0.113.2"},
			problems: []string{"a PoolExhausted", "a OutsidePools", "b PoolNotFound", "b OutsidePools"},
		},
	})
}

// TestPools: which pools give, and which do not.
func TestPools(t *testing.T) {
	t.Parallel()
	check(t, map[string]plan{
		"pools give in the order of their names": {
			pools:    []*view.Pool{pool("b", 1, "192.0.2.1/32"), pool("a", 2, "192.0.2.9/32")},
			services: []*view.Service{service("x", 1), service("y", 2)},
			want:     map[string]string{"x": "192.0.2.9", "y": "192.0.2.1"},
		},
		"a full pool": {
			pools:    []*view.Pool{pool("one", 1, "192.0.2.1/32"), six},
			services: []*view.Service{service("a", 1), service("b", 2)},
			want:     map[string]string{"a": "192.0.2.1", "b": ""},
			problems: []string{"b PoolExhausted"},
		},
		"avoidBuggyIPs": {
			pools:    []*view.Pool{avoiding(pool("p", 1, "192.0.2.254-192.0.3.1"))},
			services: []*view.Service{service("a", 1), service("b", 2), service("c", 3)},
			want:     map[string]string{"a": "192.0.2.254", "b": "192.0.3.1", "c": ""},
			problems: []string{"c PoolExhausted"},
		},
		"the younger of two overlapping pools gives nothing": {
			pools: []*view.Pool{pool("a-young", 2, "192.0.2.0/24"), pool("b-old", 1, "192.0.2.200-192.0.2.201")},
			services: []*view.Service{
				service("held", 1, holds("192.0.2.5")), service("x", 2), service("y", 3), service("z", 4),
				service("req", 5, asks("192.0.2.7")), service("pool", 6, asksPool("a-young")),
			},
			want: map[string]string{
				"held": "192.0.2.5", "x": "192.0.2.200", "y": "192.0.2.201", "z": "", "req": "", "pool": "",
			},
			problems: []string{"a-young PoolOverlap", "pool PoolBlocked", "req PoolBlocked", "z PoolExhausted"},
		},
	})
}

// TestAssumed: a decision that the snapshot does not show yet is kept, and the
// address that the Service is leaving is not free before its status says so.
func TestAssumed(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{pool("p", 1, "192.0.2.1-192.0.2.3")},
		service("moving", 1, holds("192.0.2.1")), service("new", 2))
	assumed := allocation.Assignments{Services: map[view.Ref]allocation.Assignment{
		{Namespace: "default", Name: "moving"}: {Addresses: parse("192.0.2.2")},
	}}
	assigned, problems := allocation.Plan(c, assumed, view.Classes{})
	addrs, _ := told(assigned, problems)
	if d := cmp.Diff(map[string]string{"moving": "192.0.2.2", "new": "192.0.2.3"}, addrs); d != "" {
		t.Errorf("addresses (-want +got):\n%s", d)
	}
}

// TestAssumedIsNotLeft: a Service stays on an address whose write is under way, whatever
// becomes of its pool or its request meanwhile, and moves once its status shows it: the
// write could land after the address was given to another Service.
func TestAssumedIsNotLeft(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pools  []*view.Pool
		moving *view.Service
	}{
		"its pool drops the address and renumbers": {
			pools:  []*view.Pool{renumbers(had(pool("p", 1, "192.0.2.3-192.0.2.9"), "192.0.2.1-192.0.2.9"))},
			moving: service("moving", 1),
		},
		"the address that it asks for becomes free": {
			pools:  []*view.Pool{pool("p", 1, "192.0.2.1-192.0.2.9")},
			moving: service("moving", 1, asks("192.0.2.3")),
		},
		"the pool that it asks for comes to be": {
			pools:  []*view.Pool{manual(pool("p", 1, "192.0.2.3-192.0.2.9")), pool("q", 2, "192.0.2.1/32")},
			moving: service("moving", 1, asksPool("p")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(tt.pools, tt.moving, service("wants", 2, asks("192.0.2.1")))
			assumed := allocation.Assignments{Services: map[view.Ref]allocation.Assignment{tt.moving.Ref: {Addresses: parse("192.0.2.1")}}}
			addrs, reasons := told(allocation.Plan(c, assumed, view.Classes{}))
			if d := cmp.Diff(map[string]string{"moving": "192.0.2.1", "wants": ""}, addrs); d != "" {
				t.Errorf("addresses while the write is under way (-want +got):\n%s", d)
			}
			if !slices.Contains(reasons, "wants RequestTaken") {
				t.Errorf("the other Service is told %v, want RequestTaken", reasons)
			}
			tt.moving.Ingress = parse("192.0.2.1")
			addrs, _ = told(allocation.Plan(c, allocation.Assignments{}, view.Classes{}))
			if d := cmp.Diff(map[string]string{"moving": "192.0.2.3", "wants": ""}, addrs); d != "" {
				t.Errorf("addresses once it is seen (-want +got):\n%s", d)
			}
		})
	}
}

// TestMessages: what people read names the value and the way out.
func TestMessages(t *testing.T) {
	t.Parallel()
	c := cluster(
		[]*view.Pool{pool("old", 1, "192.0.2.0/30"), pool("young", 2, "192.0.2.2-192.0.2.9")},
		service("a", 1, holds("192.0.2.0")), service("b", 2, asks("192.0.2.0")),
		service("c", 3, families(view.PreferDualStack, addr.IPv4, addr.IPv6)),
		service("d", 4, holds("192.0.2.1")), service("e", 5, asks("192.0.2.1")),
	)
	c.Services[view.Ref{Namespace: "default", Name: "d"}].Deleting = true
	_, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
	want := []string{
		`IPAddressPool/young: PoolOverlap: 192.0.2.2-192.0.2.3 is in the older IPAddressPool "old" too: this pool gives no addresses until the ranges are apart; addresses already given stay`,
		`Service/default/b: RequestTaken: the requested address 192.0.2.0 is held by Service default/a (to share it, give both the same annotation fairlead.dev/share-key)`,
		`Service/default/c: FamilyMissing: no IPv6 address: no IPAddressPool gives this Service IPv6 addresses without being asked: create one, or look at autoAssign, disabled and serviceAllocation of those that there are`,
		`Service/default/e: RequestTaken: the requested address 192.0.2.1 is held by Service default/d (it is being deleted, and has the address until its finalizers are done)`,
	}
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	c := cluster(
		[]*view.Pool{
			avoiding(pool("avoiding", 1, "192.0.2.0-192.0.3.255")),
			pool("blocked", 2, "192.0.2.0/24", "198.51.100.0/24"),
			pool("big", 3, "2001:db8::/32", "10.0.0.0/8"),
			pool("all", 4, "0.0.0.0/8"),
		},
		service("a", 1, holds("192.0.2.1")), service("b", 2, holds("192.0.2.255")),
		service("c", 3, holds("198.51.100.1")), service("d", 4), service("e", 5, holds("203.0.113.1")),
	)
	got := allocation.Count(c, allocation.Assignments{Services: map[view.Ref]allocation.Assignment{
		{Namespace: "default", Name: "d"}: {Addresses: parse("10.0.0.0", "2001:db8::")},
	}})
	want := map[string]allocation.Usage{
		"avoiding": {IPv4: allocation.Counts{Assigned: 2, Available: 507, Total: 508}},
		"blocked":  {IPv4: allocation.Counts{Assigned: 1, Total: 512}},
		"big":      {IPv4: allocation.Counts{Assigned: 1, Available: 1<<24 - 1, Total: 1 << 24}, IPv6: allocation.Counts{Assigned: 1, Available: 1<<63 - 1, Total: 1<<63 - 1}},
		"all":      {IPv4: allocation.Counts{Available: 1 << 24, Total: 1 << 24}},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(allocation.Usage{}, "Lack")); d != "" {
		t.Errorf("usage (-want +got):\n%s", d)
	}
}

// BenchmarkPlan: one more Service among many, in a pool of a /8 and a /64.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			c := cluster([]*view.Pool{pool("p", 1, "10.0.0.0/8", "2001:db8::/64")})
			for i := range n {
				s := service(fmt.Sprintf("s%05d", i), i, families(view.PreferDualStack, addr.IPv4, addr.IPv6))
				c.Services[s.Ref] = s
			}
			assigned, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
			for ref, a := range assigned.Services {
				c.Services[ref].Ingress = a.Addresses
			}
			one := service("one-more", n)
			c.Services[one.Ref] = one
			for b.Loop() {
				assigned, _ = allocation.Plan(c, allocation.Assignments{}, view.Classes{})
			}
			if want := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}); assigned.Services[one.Ref].Addresses[0] != want {
				b.Fatalf("got %v, want %s", assigned.Services[one.Ref].Addresses, want)
			}
		})
	}
}
