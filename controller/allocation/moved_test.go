package allocation_test

import (
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// TestMovedToOneFamily: what a Service with PreferDualStack has in the end depends on what it asks for, not on what it
// had: moved to where one family is, it gets as much as a new one.
func TestMovedToOneFamily(t *testing.T) {
	t.Parallel()
	check(t, map[string]plan{
		"to a pool": {
			pools: []*view.Pool{pool("front", 1, "192.0.2.0/24", "2001:db8::/64"), pool("four", 2, "198.51.100.0/24"), manual(pool("full", 3, "203.0.113.1/32"))},
			services: []*view.Service{
				service("new", 1, dual, asksPool("four")), service("moved", 2, dual, asksPool("four"), holds("192.0.2.1", "2001:db8::1")),
				service("there", 3, dual, asksPool("four"), holds("198.51.100.9", "2001:db8::2")),
				service("six first", 4, families(view.PreferDualStack, addr.IPv6, addr.IPv4), asksPool("four"), holds("2001:db8::3", "192.0.2.3")),
				service("holder", 5, holds("203.0.113.1")), service("to a full one", 6, dual, asksPool("full"), holds("192.0.2.4", "2001:db8::4")),
				service("to one that is not yet", 7, dual, asksPool("four", "gone"), holds("192.0.2.5", "2001:db8::5")),
				service("to that of the other, too", 8, dual, asksPool("four", "front"), holds("192.0.2.6", "2001:db8::6")),
				service("asks for it", 9, dual, asksPool("four"), asks("2001:db8::7"), holds("192.0.2.7", "2001:db8::7")),
				service("insists", 10, both, asksPool("four"), holds("2001:db8::8", "192.0.2.8")),
			},
			want: map[string]string{
				"new": "198.51.100.1", "moved": "198.51.100.2", "there": "198.51.100.9", "six first": "198.51.100.3",
				"holder": "203.0.113.1", "to a full one": "192.0.2.4 2001:db8::4", "to one that is not yet": "198.51.100.4 2001:db8::5",
				"to that of the other, too": "192.0.2.6 2001:db8::6", "asks for it": "198.51.100.0 2001:db8::7", "insists": "2001:db8::8 198.51.100.5",
			},
			problems: []string{
				"insists NoPool", "moved FamilyMissing", "new FamilyMissing", "six first FamilyMissing", "there FamilyMissing",
				"to a full one NoPool", "to a full one PoolExhausted", "to one that is not yet PoolNotFound",
			},
		},
		"its pool loses one, and it does not move": {
			pools:    []*view.Pool{with(pool("edited", 1, "192.0.2.0/24"), func(p *view.Pool) { p.Former, p.Renumber = pool("", 0, "2001:db8::/64").Ranges, true })},
			services: []*view.Service{service("a", 1, dual, asksPool("edited"), holds("192.0.2.1", "2001:db8::1"))},
			want:     map[string]string{"a": "192.0.2.1 2001:db8::1"},
			problems: []string{"a NoPool", "a AddressDropped"},
		},
		"to a reservation": {
			pools: []*view.Pool{pool("p", 1, "192.0.2.0/24", "2001:db8::/64")},
			services: []*view.Service{
				service("new", 1, dual, on("four")), service("moved", 2, dual, on("six"), holds("192.0.2.2", "2001:db8::2")),
				service("to one that waits", 3, dual, on("waits"), holds("192.0.2.3", "2001:db8::3")),
			},
			booked: bookings(
				booking("four", 4, these("192.0.2.4"), has("192.0.2.4")), booking("six", 5, anyOf(1, addr.IPv6), has("2001:db8::5")),
				booking("waits", 6, these("192.0.2.6", "2001:db8:f::1"), has("192.0.2.6")),
			),
			want: map[string]string{
				"new": "192.0.2.4", "moved": "2001:db8::5", "to one that waits": "192.0.2.6 2001:db8::3",
				"four": "192.0.2.4", "six": "2001:db8::5", "waits": "192.0.2.6",
			},
			problems: []string{"waits RequestOutsidePools", "moved FamilyMissing", "new FamilyMissing", "to one that waits ReservationExhausted"},
		},
	})
}
