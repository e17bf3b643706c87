package allocation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/view"
)

// had makes a pool that an edit has taken ranges out of.
func had(p *view.Pool, ranges ...string) *view.Pool {
	p.Former = pool("", 0, ranges...).Ranges
	return p
}

func renumbers(p *view.Pool) *view.Pool {
	p.Renumber = true
	return p
}

// TestAddressesThatAnEditTakesOut: what becomes of those who have them.
func TestAddressesThatAnEditTakesOut(t *testing.T) {
	t.Parallel()
	check(t, map[string]plan{
		"Keep": {
			pools: []*view.Pool{had(pool("p", 1, "192.0.2.0/30"), "192.0.2.0/24")},
			services: []*view.Service{
				service("a", 1, holds("192.0.2.99")), service("b", 2, asksPool("p"), holds("192.0.2.98")),
				service("c", 3, asks("192.0.2.97"), holds("192.0.2.97")), service("d", 4, asks("192.0.2.96")),
			},
			want:     map[string]string{"a": "192.0.2.99", "b": "192.0.2.98", "c": "192.0.2.97", "d": ""},
			problems: []string{"p UsedAddressesDropped", "a AddressDropped", "b AddressDropped", "c AddressDropped", "d RequestOutsidePools"},
		},
		"Keep, and they ask for another pool, or for this one among others": {
			pools: []*view.Pool{had(pool("p", 1, "192.0.2.0/30"), "192.0.2.0/24"), manual(pool("q", 2, "198.51.100.0/24"))},
			services: []*view.Service{
				service("a", 1, holds("192.0.2.99"), asksPool("q")), service("b", 2, holds("192.0.2.98"), asksPool("q", "p")),
			},
			want:     map[string]string{"a": "198.51.100.0", "b": "192.0.2.98"},
			problems: []string{"p UsedAddressesDropped", "b AddressDropped"},
		},
		"Renumber": {
			pools:    []*view.Pool{renumbers(had(pool("p", 1, "192.0.2.0/31"), "192.0.2.0/24"))},
			services: []*view.Service{service("a", 1, holds("192.0.2.99")), service("b", 2, holds("192.0.2.1")), service("c", 3, holds("192.0.2.98"))},
			want:     map[string]string{"a": "192.0.2.0", "b": "192.0.2.1", "c": "192.0.2.98"},
			problems: []string{"c PoolExhausted", "c AddressDropped"},
		},
		"Renumber, and they ask for the address, or for one that is still there": {
			pools: []*view.Pool{renumbers(had(pool("p", 1, "192.0.2.0/30"), "192.0.2.0/24"))},
			services: []*view.Service{
				service("a", 1, asks("192.0.2.99"), holds("192.0.2.99")), service("b", 2, asks("192.0.2.3"), holds("192.0.2.98")),
			},
			want:     map[string]string{"a": "192.0.2.99", "b": "192.0.2.3"},
			problems: []string{"a AddressDropped"},
		},
		"Renumber together": {
			pools: []*view.Pool{renumbers(had(pool("p", 1, "192.0.2.0/30"), "192.0.2.0/24"))},
			services: []*view.Service{
				service("a", 1, shares("k", 80), holds("192.0.2.99")), service("b", 2, shares("k", 443), holds("192.0.2.99")),
			},
			want: map[string]string{"a": "192.0.2.0", "b": "192.0.2.0"},
		},
		"an address that went to another pool is dropped by none": {
			pools:    []*view.Pool{renumbers(had(pool("p", 1, "192.0.2.0/30"), "192.0.2.0/24")), pool("q", 2, "192.0.2.64/26")},
			services: []*view.Service{service("a", 1, holds("192.0.2.99"))},
			want:     map[string]string{"a": "192.0.2.99"},
		},
		"the older of two that had it decides": {
			pools: []*view.Pool{
				renumbers(had(pool("p", 2, "192.0.2.0/30"), "192.0.2.0/24")), had(pool("q", 1, "198.51.100.0/30"), "192.0.2.99/32"),
			},
			services: []*view.Service{service("a", 1, holds("192.0.2.99"))},
			want:     map[string]string{"a": "192.0.2.99"},
			problems: []string{"q UsedAddressesDropped", "a AddressDropped"},
		},
		"what no Service can have is not taken over": {
			pools:    []*view.Pool{pool("p", 1, "192.0.2.0/30")},
			services: []*view.Service{service("a", 1, holds("127.0.0.1")), service("b", 2, holds("224.0.0.1", "192.0.2.3"))},
			want:     map[string]string{"a": "192.0.2.0", "b": "192.0.2.3"},
			problems: []string{"a AddressRefused", "b AddressRefused"},
		},
	})
}

// TestExtent: the status of a pool is to say what it has, and what of that which it had
// Services hold or still show.
func TestExtent(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{
		had(pool("p", 1, "192.0.2.0/30"), "192.0.2.0/24"), had(pool("same", 2, "198.51.100.0/24"), "198.51.100.0/24"), pool("new", 3, "203.0.113.0/24"),
	}, service("a", 1, holds("192.0.2.99")), service("b", 2, holds("192.0.2.98")), service("c", 3, holds("192.0.2.2")), service("d", 4, holds("10.0.0.1")))
	assigned := allocation.Assignments{Services: map[view.Ref]allocation.Assignment{{Namespace: "default", Name: "b"}: {Addresses: parse("192.0.2.3")}}}
	got := map[string]string{}
	for name, ranges := range allocation.Extent(c, assigned) {
		for _, r := range ranges {
			got[name] += r.String() + " "
		}
	}
	want := map[string]string{
		"p":    "192.0.2.0-192.0.2.3 192.0.2.98-192.0.2.99 ",
		"same": "198.51.100.0-198.51.100.255 ", "new": "203.0.113.0-203.0.113.255 ",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestCountOfDropped: what Services hold counts as assigned in the pool that it is announced as, also after
// an edit that has taken it out: nothing is less available for it. What went to another pool counts there.
func TestCountOfDropped(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{
		had(pool("p", 1, "192.0.2.0/30"), "192.0.2.0/24", "2001:db8::/64"), pool("q", 2, "192.0.2.128/30"),
	}, service("a", 1, holds("192.0.2.99", "2001:db8::1")), service("b", 2, holds("192.0.2.98")), service("c", 3, holds("192.0.2.2")), service("d", 4, holds("192.0.2.129")),
		service("e", 5, holds("10.0.0.1")))
	assigned := allocation.Assignments{Services: map[view.Ref]allocation.Assignment{{Namespace: "default", Name: "b"}: {Addresses: parse("192.0.2.3")}}}
	got := allocation.Count(c, assigned)
	want := map[string]allocation.Usage{
		"p": {IPv4: allocation.Counts{Assigned: 3, Available: 2, Total: 4}, IPv6: allocation.Counts{Assigned: 1}},
		"q": {IPv4: allocation.Counts{Assigned: 1, Available: 3, Total: 4}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
