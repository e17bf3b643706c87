package allocation_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// booking makes a reservation of the namespace default that asks for nothing yet.
func booking(name string, age int, options ...func(*view.Reservation)) *view.Reservation {
	r := &view.Reservation{
		Ref:      view.Ref{Namespace: "default", Name: name},
		Created:  epoch.Add(time.Duration(age) * time.Second),
		Families: []addr.Family{addr.IPv4},
	}
	for _, o := range options {
		o(r)
	}
	return r
}

func these(addrs ...string) func(*view.Reservation) {
	return func(r *view.Reservation) { r.Addresses = parse(addrs...) }
}

func anyOf(count int, families ...addr.Family) func(*view.Reservation) {
	return func(r *view.Reservation) {
		r.Count = count
		if len(families) > 0 {
			r.Families = families
		}
	}
}

func has(addrs ...string) func(*view.Reservation) {
	return func(r *view.Reservation) { r.Held = parse(addrs...) }
}

func of(namespace string) func(*view.Reservation) {
	return func(r *view.Reservation) { r.Namespace = namespace }
}

func from(pool string) func(*view.Reservation) {
	return func(r *view.Reservation) { r.Pool = pool }
}

// on asks for reservations.
func on(names ...string) option {
	return func(s *view.Service) { s.Request.Reservations = names }
}

func bookings(all ...*view.Reservation) []*view.Reservation { return all }

// TestBooking: what a reservation gets, and what it does not.
func TestBooking(t *testing.T) {
	t.Parallel()
	one := func() []*view.Pool {
		return []*view.Pool{pool("p", 1, "192.0.2.1-192.0.2.4", "2001:db8::1-2001:db8::2")}
	}
	check(t, map[string]plan{
		"any addresses, of each family": {
			pools:  one(),
			booked: bookings(booking("r", 1, anyOf(2, addr.IPv4, addr.IPv6))),
			want:   map[string]string{"r": "192.0.2.1 192.0.2.2 2001:db8::1 2001:db8::2"},
		},
		"before Services, and nobody else gets them": {
			pools:    one(),
			services: []*view.Service{service("a", 1), service("b", 2), service("c", 3)},
			booked:   bookings(booking("r", 9, anyOf(2))),
			want:     map[string]string{"r": "192.0.2.1 192.0.2.2", "a": "192.0.2.3", "b": "192.0.2.4", "c": ""},
			problems: []string{"c PoolExhausted"},
		},
		"as many as there are": {
			pools:    one(),
			services: []*view.Service{service("a", 1, holds("192.0.2.2"))},
			booked:   bookings(booking("r", 9, anyOf(5))),
			want:     map[string]string{"r": "192.0.2.1 192.0.2.3 192.0.2.4", "a": "192.0.2.2"},
			problems: []string{"r PoolExhausted"},
		},
		"never what a Service of another namespace has": {
			pools:    one(),
			services: []*view.Service{service("a", 9, in("shop"), holds("192.0.2.2"))},
			booked:   bookings(booking("r", 1, these("192.0.2.1", "192.0.2.2"))),
			want:     map[string]string{"r": "192.0.2.1", "a": "192.0.2.2"},
			problems: []string{"r RequestTaken"},
		},
		"what a Service of its namespace has, which stays": {
			pools:    one(),
			services: []*view.Service{service("a", 9, holds("192.0.2.2"))},
			booked:   bookings(booking("r", 1, these("192.0.2.2"))),
			want:     map[string]string{"r": "192.0.2.2", "a": "192.0.2.2"},
		},
		"nothing that a Service of another namespace shares": {
			pools: one(),
			services: []*view.Service{
				service("a", 1, shares("k", 80), holds("192.0.2.2")), service("b", 1, in("shop"), shares("k", 443), holds("192.0.2.2")),
			},
			booked:   bookings(booking("r", 1, these("192.0.2.2"))),
			want:     map[string]string{"r": "", "a": "192.0.2.2", "b": "192.0.2.2"},
			problems: []string{"r RequestTaken", "a SharingNotAgreed", "b SharingNotAgreed"},
		},
		"no address is in two reservations": {
			pools:    one(),
			booked:   bookings(booking("older", 1, these("192.0.2.2")), booking("younger", 2, these("192.0.2.2"))),
			want:     map[string]string{"older": "192.0.2.2", "younger": ""},
			problems: []string{"younger RequestTaken"},
		},
		"what is asked for by itself must be in a pool, in that pool, and not be kept back": {
			pools:    append(one(), pool("q", 2, "198.51.100.0/30")),
			booked:   bookings(booking("r", 1, these("203.0.113.1", "192.0.2.1")), booking("s", 2, these("192.0.2.2"), from("q")), booking("u", 3, of("shop"), these("192.0.2.3"))),
			cooling:  map[string]string{"192.0.2.3": "gone"},
			want:     map[string]string{"r": "192.0.2.1", "s": "", "u": ""},
			problems: []string{"r RequestOutsidePools", "s RequestOutsidePools", "u AddressCooling"},
		},
		"what its namespace left a short time ago, if it names it, and what it left itself": {
			pools:   one(),
			booked:  bookings(booking("r", 1, these("192.0.2.3")), booking("again", 2, anyOf(1)), booking("s", 3, anyOf(1))),
			cooling: map[string]string{"192.0.2.3": "gone", "192.0.2.4": "again", "192.0.2.1": "gone"},
			want:    map[string]string{"r": "192.0.2.3", "again": "192.0.2.4", "s": "192.0.2.2"},
		},
		"the pool that it names": {
			pools:    []*view.Pool{pool("p", 1, "192.0.2.1/32"), manual(pool("q", 2, "198.51.100.1/32"))},
			booked:   bookings(booking("r", 1, anyOf(1), from("q")), booking("none", 2, anyOf(1), from("missing")), booking("full", 3, anyOf(1), from("q"))),
			want:     map[string]string{"r": "198.51.100.1", "none": "", "full": ""},
			problems: []string{"full PoolExhausted", "none PoolNotFound"},
		},
		"of pools that are for its namespace, and unasked of none that chooses Services": {
			pools: []*view.Pool{
				with(pool("shops", 1, "192.0.2.1/32"), func(p *view.Pool) { p.Namespaces = []string{"shop"} }),
				with(pool("front", 2, "192.0.2.2/32"), func(p *view.Pool) { p.ServiceSelectors = []view.Selector{labelled("front")} }),
				pool("rest", 3, "192.0.2.3/32"),
			},
			booked: bookings(booking("r", 1, anyOf(1)), booking("named", 2, these("192.0.2.1")), booking("shop", 3, of("shop"), anyOf(1)),
				booking("asks", 4, anyOf(1), from("front"))),
			want:     map[string]string{"r": "192.0.2.3", "named": "", "shop": "192.0.2.1", "asks": "192.0.2.2"},
			problems: []string{"named PoolNotAllowed"},
		},
		"nothing of a pool that is disabled, but what it has": {
			pools:    []*view.Pool{with(pool("p", 1, "192.0.2.0/24"), func(p *view.Pool) { p.Disabled = true })},
			services: []*view.Service{service("a", 1, holds("192.0.2.7"))},
			booked:   bookings(booking("r", 1, these("192.0.2.1", "192.0.2.2"), has("192.0.2.1")), booking("s", 2, these("192.0.2.7"))),
			want:     map[string]string{"r": "192.0.2.1", "s": "", "a": "192.0.2.7"},
			problems: []string{"r PoolDisabled", "s PoolDisabled"},
		},
		"its addresses count for the quota of the namespace, one with a Service once": {
			pools:    []*view.Pool{with(pool("p", 1, "192.0.2.0/24"), func(p *view.Pool) { p.MaxPerNamespace = 2 })},
			services: []*view.Service{service("a", 1, holds("192.0.2.7")), service("b", 2), service("shop", 3, in("shop"))},
			booked:   bookings(booking("r", 1, these("192.0.2.7", "192.0.2.8", "192.0.2.9"))),
			want:     map[string]string{"r": "192.0.2.7 192.0.2.8", "a": "192.0.2.7", "b": "", "shop": "192.0.2.0"},
			problems: []string{"r QuotaExceeded", "b QuotaExceeded"},
		},
		"one that cannot be read keeps what it has": {
			pools: one(),
			booked: bookings(booking("r", 1, has("192.0.2.3"), func(r *view.Reservation) {
				bad := problem.New(r.Object(), "InvalidAddresses", "unreadable")
				r.Invalid = &bad
			})),
			want:     map[string]string{"r": "192.0.2.3"},
			problems: []string{"r InvalidAddresses"},
		},
	})
}

// TestBookingStays: what a reservation holds, it keeps, until it is asked for less or for
// something else.
func TestBookingStays(t *testing.T) {
	t.Parallel()
	check(t, map[string]plan{
		"what it has, although lower ones are free": {
			pools:  []*view.Pool{pool("p", 1, "192.0.2.0/24")},
			booked: bookings(booking("r", 1, anyOf(2), has("192.0.2.9"))),
			want:   map[string]string{"r": "192.0.2.0 192.0.2.9"},
		},
		"with a lower count, first what Services have": {
			pools:    []*view.Pool{pool("p", 1, "192.0.2.0/24")},
			services: []*view.Service{service("a", 1, holds("192.0.2.9"), on("r"))},
			booked:   bookings(booking("r", 1, anyOf(2), has("192.0.2.7", "192.0.2.8", "192.0.2.9"))),
			want:     map[string]string{"r": "192.0.2.7 192.0.2.9", "a": "192.0.2.9"},
		},
		"what it no longer names, it gives back, and nobody gets it before it shows that": {
			pools:    []*view.Pool{pool("p", 1, "192.0.2.1-192.0.2.2")},
			services: []*view.Service{service("a", 1)},
			booked:   bookings(booking("r", 1, these("192.0.2.2"), has("192.0.2.1"))),
			want:     map[string]string{"r": "192.0.2.2", "a": ""},
			problems: []string{"a PoolExhausted"},
		},
		"in another pool, once that has one": {
			pools:  []*view.Pool{pool("p", 1, "192.0.2.1/32"), pool("q", 2, "198.51.100.1/32")},
			booked: bookings(booking("r", 1, anyOf(1), has("192.0.2.1"), from("q")), booking("s", 2, anyOf(1), has("192.0.2.1"), from("q"))),
			want:   map[string]string{"r": "198.51.100.1", "s": ""},
			// A status written by hand: the older one keeps what both show.
			problems: []string{"s PoolExhausted", "s AddressDuplicate"},
		},
		"what a pool has dropped, if it says Keep": {
			pools:    []*view.Pool{had(pool("p", 1, "192.0.2.0/30"), "192.0.2.0/24")},
			booked:   bookings(booking("r", 1, anyOf(1), has("192.0.2.99"))),
			want:     map[string]string{"r": "192.0.2.99"},
			problems: []string{"p UsedAddressesDropped", "r AddressDropped"},
		},
		"not what a pool has dropped, if it says Renumber, but for what it names": {
			pools:    []*view.Pool{with(had(pool("p", 1, "192.0.2.0/30"), "192.0.2.0/24"), func(p *view.Pool) { p.Renumber = true })},
			booked:   bookings(booking("r", 1, anyOf(1), has("192.0.2.99")), booking("names", 2, these("192.0.2.98"), has("192.0.2.98"))),
			want:     map[string]string{"r": "192.0.2.0", "names": "192.0.2.98"},
			problems: []string{"names AddressDropped"},
		},
		"until there is another, if it is to leave": {
			pools:    []*view.Pool{with(had(pool("p", 1, "192.0.2.0/32"), "192.0.2.0/24"), func(p *view.Pool) { p.Renumber = true })},
			booked:   bookings(booking("r", 1, anyOf(2), has("192.0.2.98", "192.0.2.99"))),
			want:     map[string]string{"r": "192.0.2.0 192.0.2.98"},
			problems: []string{"r PoolExhausted", "r AddressDropped"},
		},
		"what a Service of another namespace shows as well, the Service keeps": {
			pools:    []*view.Pool{pool("p", 1, "192.0.2.0/24")},
			services: []*view.Service{service("a", 9, in("shop"), holds("192.0.2.7"))},
			booked:   bookings(booking("r", 1, anyOf(1), has("192.0.2.7"))),
			want:     map[string]string{"r": "192.0.2.0", "a": "192.0.2.7"},
			problems: []string{"r AddressDuplicate"},
		},
		"as it is while it is being deleted": {
			pools:    []*view.Pool{pool("p", 1, "192.0.2.1/32")},
			services: []*view.Service{service("a", 1), service("b", 2, on("r"))},
			booked:   bookings(booking("r", 1, anyOf(1), has("192.0.2.1"), func(r *view.Reservation) { r.Deleting = true })),
			want:     map[string]string{"a": "", "b": ""},
			problems: []string{"a PoolExhausted", "b ReservationNotFound"},
		},
	})
}

// TestStandOn: who gets a reserved address.
func TestStandOn(t *testing.T) {
	t.Parallel()
	p := func() []*view.Pool { return []*view.Pool{pool("p", 1, "192.0.2.1-192.0.2.9", "2001:db8::/64")} }
	check(t, map[string]plan{
		"Services that ask for the reservation, one each": {
			pools:    p(),
			services: []*view.Service{service("a", 1, on("r")), service("b", 2, on("r")), service("c", 3, on("r"))},
			booked:   bookings(booking("r", 9, anyOf(2), has("192.0.2.4", "192.0.2.5"))),
			want:     map[string]string{"r": "192.0.2.4 192.0.2.5", "a": "192.0.2.4", "b": "192.0.2.5", "c": ""},
			problems: []string{"c ReservationExhausted"},
		},
		"of each family one": {
			pools:    p(),
			services: []*view.Service{service("a", 1, dual, on("r", "six"))},
			booked:   bookings(booking("r", 9, anyOf(1), has("192.0.2.4")), booking("six", 9, anyOf(1, addr.IPv6), has("2001:db8::4"))),
			want:     map[string]string{"r": "192.0.2.4", "six": "2001:db8::4", "a": "192.0.2.4 2001:db8::4"},
		},
		"those that name the address, in a disabled pool too": {
			pools:    []*view.Pool{with(pool("p", 1, "192.0.2.0/24"), func(p *view.Pool) { p.Disabled, p.MaxPerNamespace = true, 1 })},
			services: []*view.Service{service("a", 1, asks("192.0.2.4"))},
			booked:   bookings(booking("r", 9, anyOf(1), has("192.0.2.4"))),
			want:     map[string]string{"r": "192.0.2.4", "a": "192.0.2.4"},
		},
		"nobody of another namespace": {
			pools: p(),
			services: []*view.Service{
				service("a", 1, in("shop"), asks("192.0.2.4")), service("b", 2, in("shop"), on("r")),
				service("c", 3, in("shop"), shares("k", 443)), service("d", 4, shares("k", 80), holds("192.0.2.4"), on("r")),
			},
			booked:   bookings(booking("r", 9, anyOf(1), has("192.0.2.4"))),
			want:     map[string]string{"r": "192.0.2.4", "a": "", "b": "", "c": "192.0.2.1", "d": "192.0.2.4"},
			problems: []string{"a RequestTaken", "b ReservationNotFound"},
		},
		"those who share it": {
			pools: p(),
			services: []*view.Service{
				service("a", 1, shares("k", 80), on("r")), service("b", 2, shares("k", 443), on("r")), service("c", 3, shares("k", 80), on("r")),
			},
			booked: bookings(booking("r", 9, anyOf(2), has("192.0.2.4", "192.0.2.5"))),
			want:   map[string]string{"r": "192.0.2.4 192.0.2.5", "a": "192.0.2.4", "b": "192.0.2.4", "c": "192.0.2.5"},
		},
		"nobody before the reservation shows it": {
			pools:    p(),
			services: []*view.Service{service("a", 1, on("r")), service("b", 2, on("r"), holds("192.0.2.7"))},
			booked:   bookings(booking("r", 9, anyOf(2))),
			want:     map[string]string{"r": "192.0.2.1 192.0.2.2", "a": "", "b": "192.0.2.7"},
			problems: []string{"a ReservationExhausted", "b ReservationExhausted"},
		},
		"nobody whom the pool is not for": {
			pools:    []*view.Pool{with(pool("p", 1, "192.0.2.0/24"), func(p *view.Pool) { p.ServiceSelectors = []view.Selector{labelled("front")} })},
			services: []*view.Service{service("a", 1, on("r")), service("b", 2, on("r"), carries("front")), service("c", 3, asks("192.0.2.5"))},
			booked:   bookings(booking("r", 9, anyOf(2), from("p"), has("192.0.2.4", "192.0.2.5"))),
			want:     map[string]string{"r": "192.0.2.4 192.0.2.5", "a": "", "b": "192.0.2.4", "c": ""},
			problems: []string{"a ReservationExhausted", "c PoolNotAllowed"},
		},
		"what is asked for must be in the reservation": {
			pools:    p(),
			services: []*view.Service{service("a", 1, on("r"), asks("192.0.2.4")), service("b", 2, on("r"), asks("192.0.2.6")), service("c", 3, on("r"), asksPool("q"))},
			booked:   bookings(booking("r", 9, anyOf(2), has("192.0.2.4", "192.0.2.5"))),
			want:     map[string]string{"r": "192.0.2.4 192.0.2.5", "a": "192.0.2.4", "b": "", "c": ""},
			problems: []string{"b RequestOutsideReservation", "c ReservationExhausted"},
		},
		"a Service that has another address moves onto it, and stays when the reservation goes": {
			pools:    p(),
			services: []*view.Service{service("a", 1, on("r"), holds("192.0.2.7")), service("b", 2, on("gone"), holds("192.0.2.8"))},
			booked:   bookings(booking("r", 9, anyOf(1), has("192.0.2.4"))),
			want:     map[string]string{"r": "192.0.2.4", "a": "192.0.2.4", "b": "192.0.2.8"},
			problems: []string{"b ReservationNotFound"},
		},
	})
}

// TestBookingIsCounted: reserved addresses are assigned ones, and told apart.
func TestBookingIsCounted(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{pool("p", 1, "192.0.2.0/29", "2001:db8::/127")},
		service("a", 1, holds("192.0.2.1")), service("b", 2, holds("192.0.2.2")))
	r := booking("r", 1, anyOf(2, addr.IPv4, addr.IPv6), has("192.0.2.1", "192.0.2.3", "2001:db8::"))
	c.Reservations[r.Ref] = r
	want := allocation.Usage{
		IPv4: allocation.Counts{Assigned: 3, Reserved: 2, Available: 5, Total: 8}, IPv6: allocation.Counts{Assigned: 1, Reserved: 1, Available: 1, Total: 2},
	}
	if got := allocation.Count(c, allocation.Assignments{})["p"]; got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// TestBookingIsInTheExtent: what reservations keep of a pool that was edited counts as the
// pool's.
func TestBookingIsInTheExtent(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{had(pool("p", 1, "192.0.2.0/30"), "192.0.2.0/24")})
	r := booking("r", 1, anyOf(1), has("192.0.2.99"))
	c.Reservations[r.Ref] = r
	extent := allocation.Extent(c, allocation.Assignments{})["p"]
	if !slices.ContainsFunc(extent, func(r netipx.IPRange) bool { return r.String() == "192.0.2.99-192.0.2.99" }) {
		t.Errorf("the pool has %v", extent)
	}
}

// TestBookingServiceRanges: a reservation gets nothing of what ClusterIPs are from, keeps
// what it has of that, and gives it to no Service.
func TestBookingServiceRanges(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{pool("p", 1, "192.0.2.0/29")}, service("a", 1, on("r")))
	for _, r := range bookings(booking("r", 1, anyOf(1), has("192.0.2.2")), booking("any", 2, anyOf(1)), booking("named", 3, these("192.0.2.1"))) {
		c.Reservations[r.Ref] = r
	}
	c.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/30")}
	assigned, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
	for name, want := range map[string][]netip.Addr{"r": parse("192.0.2.2"), "any": parse("192.0.2.4"), "named": nil} {
		if got := assigned.Reservations[view.Ref{Namespace: "default", Name: name}].Addresses; !slices.Equal(got, want) {
			t.Errorf("reservation %s has %v, want %v", name, got, want)
		}
	}
	addrs, reasons := told(assigned, problems)
	if addrs["a"] != "" {
		t.Errorf("the Service has %s", addrs["a"])
	}
	if d := cmp.Diff([]string{"named RequestUnusable", "r AddressInUse", "a ReservationExhausted"}, reasons); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
	if got := allocation.Count(c, assigned)["p"]; got.IPv4.Assigned != 2 || got.IPv4.Reserved != 2 || got.IPv4.Available != 3 || got.IPv4.Total != 4 {
		t.Errorf("counted %+v", got)
	}
}

// TestBookingMessages: what people read names the value and the way out.
func TestBookingMessages(t *testing.T) {
	t.Parallel()
	c := cluster([]*view.Pool{pool("p", 1, "192.0.2.1-192.0.2.2"), with(pool("off", 2, "198.51.100.0/24"), func(p *view.Pool) { p.Disabled = true })},
		service("a", 1, on("r")), service("b", 2, on("r")), service("c", 3, on("gone")), service("d", 4, on("r"), asks("192.0.2.2")),
		service("e", 5, in("shop"), asks("192.0.2.1")), service("f", 6, in("shop"), holds("203.0.113.9")))
	for _, r := range bookings(
		booking("r", 1, anyOf(1), has("192.0.2.1")), booking("many", 2, anyOf(3, addr.IPv4)), booking("named", 3, these("192.0.2.1", "203.0.113.9", "198.51.100.1")),
		booking("six", 4, anyOf(1, addr.IPv6)), booking("hand", 5, anyOf(1), from("off"), has("203.0.113.9")),
	) {
		c.Reservations[r.Ref] = r
	}
	_, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
	want := []string{
		`IPReservation/default/hand: PoolDisabled: 0 of 1 IPv4 addresses could be had: IPAddressPool "off" gives no new addresses (disabled: true)`,
		`IPReservation/default/hand: AddressDuplicate: 203.0.113.9 is held by Service shop/f as well (it is of another namespace); this IPReservation lost it`,
		`IPReservation/default/many: PoolExhausted: 1 of 3 IPv4 addresses could be had: no IPv4 address is free in IPAddressPool "p": add addresses to a pool, or create one`,
		`IPReservation/default/named: PoolDisabled: the requested address 198.51.100.1 cannot be given: IPAddressPool "off" gives no new addresses (disabled: true)`,
		`IPReservation/default/named: RequestTaken: the requested address 192.0.2.1 is held by IPReservation default/r (an address is in one reservation only)`,
		`IPReservation/default/named: RequestTaken: the requested address 203.0.113.9 is held by IPReservation default/hand (an address is in one reservation only)`,
		`IPReservation/default/six: NoPool: 0 of 1 IPv6 addresses could be had: no IPAddressPool gives this IPReservation IPv6 addresses without being asked: create one, or look at autoAssign, disabled and serviceAllocation of those that there are`,
		`Service/default/b: ReservationExhausted: the requested IPReservation "r" has no IPv4 address for this Service: the requested address 192.0.2.1 is held by Service default/a (to share it, give both the same annotation fairlead.dev/share-key)`,
		`Service/default/c: ReservationNotFound: the requested IPReservation "gone" does not exist in namespace "default": create it, or correct the annotation fairlead.dev/reservation`,
		`Service/default/d: RequestOutsideReservation: the requested address 192.0.2.2 is not held by the requested IPReservation "r": correct one of the two`,
		`Service/shop/e: RequestTaken: the requested address 192.0.2.1 is held by IPReservation default/r (it is for that namespace alone)`,
		`Service/shop/f: OutsidePools: no IPAddressPool holds 203.0.113.9 any more, so no advertisement covers it: add it to a pool, or have the Service ask for another`,
	}
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}
