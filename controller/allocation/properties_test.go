package allocation_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// The drawn clusters are small and crowded, so that pools run full, overlap,
// and requests meet.
//
// Each draw has generators of its own: one that parallel tests share is a data
// race, for rapid writes its name when a list is first drawn from it.

func ranges() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{
		"192.0.2.0/30", "192.0.2.2-192.0.2.6", "192.0.2.8/31", "198.51.100.254-198.51.101.1",
		"2001:db8::/126", "2001:db8::2-2001:db8::5", "2001:db8:1::/64", "10.0.0.0/8",
	})
}

func addresses() *rapid.Generator[netip.Addr] {
	return rapid.SampledFrom(parse(
		"192.0.2.0", "192.0.2.1", "192.0.2.2", "192.0.2.5", "192.0.2.9", "198.51.100.255", "10.0.0.0",
		"2001:db8::", "2001:db8::1", "2001:db8::3", "2001:db8:1::1", "203.0.113.1",
	))
}

func classes() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"", "", "", "example.com/other"})
}

func drawPool(t *rapid.T, name string) *view.Pool {
	p := pool(name, rapid.IntRange(0, 3).Draw(t, "age"))
	// Ranges of one pool do not overlap: take them from disjoint parts.
	for _, text := range rapid.SliceOfNDistinct(ranges(), 1, 2, rapid.ID[string]).Draw(t, "ranges") {
		r := pool("", 0, text).Ranges[0]
		if !slices.ContainsFunc(p.Ranges, r.Overlaps) {
			p.Ranges = append(p.Ranges, r)
		}
	}
	p.AutoAssign = rapid.Float64().Draw(t, "auto") < 0.8
	p.AvoidBuggyIPs = rapid.Bool().Draw(t, "avoid")
	if rapid.Bool().Draw(t, "edited") {
		p.Former = pool("", 0, ranges().Draw(t, "former range")).Ranges
		p.Renumber = rapid.Bool().Draw(t, "renumber")
	}
	p.Disabled = rapid.Float64().Draw(t, "disabled") < 0.1
	p.Priority = rapid.Int32Range(0, 2).Draw(t, "priority")
	p.Namespaces = rapid.SampledFrom([][]string{nil, nil, {"default"}, {"shop"}}).Draw(t, "namespaces")
	p.MaxPerNamespace = rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "quota")
	return p
}

func drawService(t *rapid.T, name string) *view.Service {
	s := service(name, rapid.IntRange(0, 5).Draw(t, "age"))
	s.Namespace = rapid.SampledFrom([]string{"default", "shop"}).Draw(t, "namespace")
	s.Class = classes().Draw(t, "class")
	s.Type = rapid.SampledFrom([]view.ServiceType{view.LoadBalancer, view.LoadBalancer, view.LoadBalancer, view.ClusterIP}).Draw(t, "type")
	s.Deleting = rapid.Float64().Draw(t, "deleting") < 0.1
	s.FamilyPolicy = rapid.SampledFrom([]view.IPFamilyPolicy{view.SingleStack, view.PreferDualStack, view.RequireDualStack}).Draw(t, "policy")
	s.Families = rapid.Permutation(addr.Families()).Draw(t, "families")
	if s.FamilyPolicy == view.SingleStack {
		s.Families = s.Families[:1]
	}
	if s.Type == view.LoadBalancer {
		s.Ingress = rapid.SliceOfNDistinct(addresses(), 0, 2, rapid.ID[netip.Addr]).Draw(t, "held")
	}
	if rapid.Float64().Draw(t, "asks") < 0.3 {
		s.Request.Addresses = rapid.SliceOfNDistinct(addresses(), 1, 3, rapid.ID[netip.Addr]).Draw(t, "request")
	}
	if rapid.Float64().Draw(t, "asks for a pool") < 0.2 {
		s.Request.Pools = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"p0", "p1", "missing"}), 1, 2, rapid.ID[string]).Draw(t, "requested pools")
	}
	if rapid.Float64().Draw(t, "asks for a reservation") < 0.3 {
		s.Request.Reservations = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"r0", "r1", "missing"}), 1, 2, rapid.ID[string]).Draw(t, "requested reservations")
	}
	s.Request.ShareKey = view.Secret(rapid.SampledFrom([]string{"", "k", "k", "l"}).Draw(t, "share key"))
	s.Request.ShareWith = rapid.SampledFrom([][]string{nil, {"default", "shop"}, {"default", "shop"}, {"elsewhere"}}).Draw(t, "share with")
	for _, port := range rapid.SliceOfNDistinct(rapid.Uint16Range(1, 3), 1, 2, rapid.ID[uint16]).Draw(t, "ports") {
		s.Ports = append(s.Ports, view.ServicePort{Port: port, Protocol: rapid.SampledFrom([]view.Protocol{view.TCP, view.UDP}).Draw(t, "protocol")})
	}
	return s
}

func drawCluster(t *rapid.T) *view.Cluster {
	c := cluster(nil)
	for i := range rapid.IntRange(0, 4).Draw(t, "pools") {
		p := drawPool(t, fmt.Sprintf("p%d", i))
		c.Pools[p.Name] = p
	}
	for i := range rapid.IntRange(0, 10).Draw(t, "services") {
		s := drawService(t, fmt.Sprintf("s%d", i))
		c.Services[s.Ref] = s
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "reservations") {
		r := drawReservation(t, fmt.Sprintf("r%d", i))
		c.Reservations[r.Ref] = r
	}
	return c
}

func drawReservation(t *rapid.T, name string) *view.Reservation {
	r := booking(name, rapid.IntRange(0, 5).Draw(t, "age"))
	r.Namespace = rapid.SampledFrom([]string{"default", "shop"}).Draw(t, "namespace")
	if rapid.Bool().Draw(t, "by name") {
		r.Addresses = rapid.SliceOfNDistinct(addresses(), 1, 3, rapid.ID[netip.Addr]).Draw(t, "reserves")
	} else {
		r.Count = rapid.IntRange(1, 3).Draw(t, "count")
		r.Families = rapid.SampledFrom([][]addr.Family{{addr.IPv4}, {addr.IPv6}, addr.Families()}).Draw(t, "families")
	}
	r.Pool = rapid.SampledFrom([]string{"", "", "p0", "p1", "missing"}).Draw(t, "pool")
	r.Held = rapid.SliceOfNDistinct(addresses(), 0, 2, rapid.ID[netip.Addr]).Draw(t, "held")
	r.Deleting = rapid.Float64().Draw(t, "deleting") < 0.1
	return r
}

// applied is the cluster once the statuses show the assignments.
func applied(c *view.Cluster, assigned allocation.Assignments) *view.Cluster {
	next := &view.Cluster{Pools: c.Pools, Services: maps.Clone(c.Services), Reservations: maps.Clone(c.Reservations)}
	for ref, a := range assigned.Services {
		s := *next.Services[ref]
		s.Ingress, s.Guest = a.Addresses, a.Guest
		next.Services[ref] = &s
	}
	for ref, a := range assigned.Reservations {
		r := *next.Reservations[ref]
		r.Held = a.Addresses
		next.Reservations[ref] = &r
	}
	return next
}

func ours(s *view.Service) bool {
	return s.Type == view.LoadBalancer && s.Class == "" && !s.Deleting
}

// TestExclusive: no address is given to two Services that do not share it, nor to one
// while another that is not ours holds it, nor while an older holder's status shows it;
// nor to two reservations, or a reservation and a Service of another namespace.
func TestExclusive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		assigned, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		owners := map[netip.Addr][]view.Ref{}
		checkReserved(t, c, assigned)
		for ref, a := range assigned.Services {
			for _, x := range a.Addresses {
				for _, other := range owners[x] {
					if !sharing(x, c.Services[other], c.Services[ref]) {
						t.Fatalf("%s is given to %s and %s", x, other, ref)
					}
				}
				owners[x] = append(owners[x], ref)
				for _, s := range c.Services {
					isNew := !slices.Contains(c.Services[ref].Ingress, x)
					if s.Ref != ref && isNew && slices.Contains(s.Ingress, x) && !sharing(x, s, c.Services[ref]) {
						t.Fatalf("%s is given to %s while the status of %s shows it", x, ref, s.Ref)
					}
				}
			}
		}
	})
}

// checkReserved holds that what reservations are given and show belongs to no other one and
// to no Service of another namespace, but for what that one held before.
func checkReserved(t *rapid.T, c *view.Cluster, assigned allocation.Assignments) {
	for ref, a := range assigned.Reservations {
		for _, x := range a.Addresses {
			isNew := !slices.Contains(c.Reservations[ref].Held, x)
			for other, b := range c.Reservations {
				if other != ref && (slices.Contains(assigned.Reservations[other].Addresses, x) || isNew && slices.Contains(b.Held, x)) {
					t.Fatalf("%s is given to the reservations %s and %s", x, other, ref)
				}
			}
			for other, s := range c.Services {
				if other.Namespace != ref.Namespace && (slices.Contains(assigned.Services[other].Addresses, x) || isNew && slices.Contains(s.Ingress, x)) {
					t.Fatalf("%s is given to the reservation %s, and Service %s has it", x, ref, other)
				}
			}
		}
	}
	for ref, a := range assigned.Services {
		for _, x := range a.Addresses {
			for other, r := range c.Reservations {
				if other.Namespace != ref.Namespace && slices.Contains(r.Held, x) && !slices.Contains(c.Services[ref].Ingress, x) {
					t.Fatalf("%s is given to Service %s while reservation %s shows it", x, ref, other)
				}
			}
		}
	}
}

// TestAllOursAndOnlyOurs: the plan has each of our Services and no other.
func TestAllOursAndOnlyOurs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		assigned, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		for ref, s := range c.Services {
			if _, planned := assigned.Services[ref]; planned != ours(s) {
				t.Fatalf("%s planned: %t, ours: %t", ref, planned, ours(s))
			}
		}
	})
}

// TestSettles: applying a plan and planning again comes to rest, at the latest
// when each Service that left an address for another has shown it, and a plan
// at rest changes nothing.
func TestSettles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		assigned, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		for range len(c.Services) + 2*len(c.Reservations) + 1 {
			c = applied(c, assigned)
			next, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
			if cmp.Equal(assigned, next, addrs, cmpopts.EquateEmpty()) {
				return
			}
			assigned = next
		}
		t.Fatalf("the plan does not come to rest")
	})
}

// TestAssumedIsIdempotent: planning again before any status was written gives
// the same plan and the same problems, except that a duplicate is told once.
func TestAssumedIsIdempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		first, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		second, told := allocation.Plan(c, first, view.Classes{})
		third, toldAgain := allocation.Plan(c, second, view.Classes{})
		if d := cmp.Diff(first, second, addrs, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("the assumed plan changed:\n%s", d)
		}
		if d := cmp.Diff(second, third, addrs, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("the assumed plan changed later:\n%s", d)
		}
		if d := cmp.Diff(told, toldAgain); d != "" {
			t.Fatalf("another story about the same state:\n%s", d)
		}
	})
}

var addrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// TestDeterministic: the plan depends on the state, not on the order of maps.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		first, told := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		for range 5 {
			again := cluster(nil)
			maps.Copy(again.Reservations, c.Reservations)
			for _, ref := range rapid.Permutation(slices.SortedFunc(maps.Keys(c.Services), view.Ref.Compare)).Draw(t, "order") {
				again.Services[ref] = c.Services[ref]
			}
			for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(c.Pools))).Draw(t, "pools") {
				again.Pools[name] = c.Pools[name]
			}
			second, toldAgain := allocation.Plan(again, allocation.Assignments{}, view.Classes{})
			if d := cmp.Diff(first, second, addrs); d != "" {
				t.Fatalf("another order, another plan:\n%s", d)
			}
			if d := cmp.Diff(told, toldAgain); d != "" {
				t.Fatalf("another order, another story:\n%s", d)
			}
		}
	})
}

// TestStable: whatever happens to pools and to other Services, a Service at
// rest keeps its addresses as long as it does not change itself.
func TestStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		for _, s := range c.Services {
			s.Request = view.Request{ShareKey: s.Request.ShareKey, ShareWith: s.Request.ShareWith}
		}
		for _, r := range c.Reservations {
			r.Pool = ""
		}
		assigned, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		c = applied(c, assigned)

		c.Pools = map[string]*view.Pool{}
		for i := range rapid.IntRange(0, 4).Draw(t, "pools afterwards") {
			p := drawPool(t, fmt.Sprintf("p%d", i))
			p.Renumber = false // which asks for what this excludes
			c.Pools[p.Name] = p
		}
		for _, ref := range slices.SortedFunc(maps.Keys(c.Services), view.Ref.Compare) {
			if rapid.Bool().Draw(t, "goes") {
				delete(c.Services, ref)
				delete(assigned.Services, ref)
			}
		}
		for _, ref := range slices.SortedFunc(maps.Keys(c.Reservations), view.Ref.Compare) {
			if rapid.Bool().Draw(t, "reservation goes") {
				delete(c.Reservations, ref)
				delete(assigned.Reservations, ref)
			}
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "new reservations") {
			r := drawReservation(t, fmt.Sprintf("n%d", i))
			r.Held = nil
			c.Reservations[r.Ref] = r
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "newcomers") {
			s := drawService(t, fmt.Sprintf("n%d", i))
			s.Ingress = nil
			c.Services[s.Ref] = s
		}
		after, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		for ref, a := range assigned.Services {
			for _, x := range a.Addresses {
				if !slices.Contains(after.Services[ref].Addresses, x) {
					t.Fatalf("%s lost %s: %v", ref, x, after.Services[ref].Addresses)
				}
			}
		}
		for ref, a := range assigned.Reservations {
			for _, x := range a.Addresses {
				if !slices.Contains(after.Reservations[ref].Addresses, x) {
					t.Fatalf("reservation %s lost %s: %v", ref, x, after.Reservations[ref].Addresses)
				}
			}
		}
	})
}

// TestGivenFromPools: a new address is in a pool that may give it, of a wanted
// family, and requests are honoured to the letter.
func TestGivenFromPools(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		assigned, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		for ref, a := range assigned.Services {
			s := c.Services[ref]
			astray := len(s.Request.Addresses) > 0 && !slices.ContainsFunc(s.Request.Addresses, func(x netip.Addr) bool {
				return slices.Contains(s.Families, addr.FamilyOf(x))
			})
			for i, x := range a.Addresses {
				if astray && !slices.Contains(s.Ingress, x) {
					t.Fatalf("%s asks for %v, wants %v and got %s", ref, s.Request.Addresses, s.Families, x)
				}
				if !slices.Contains(s.Families, addr.FamilyOf(x)) {
					t.Fatalf("%s got %s, but wants %v", ref, x, s.Families)
				}
				if i > 0 && addr.FamilyOf(a.Addresses[i-1]) == addr.FamilyOf(x) && len(s.Request.Addresses) == 0 {
					t.Fatalf("%s asks for none and got two addresses of one family: %v", ref, a.Addresses)
				}
				if !slices.Contains(s.Ingress, x) && !checkReservedGift(t, c, assigned, s, x) {
					checkGift(t, c, s, x)
				}
			}
			if s.FamilyPolicy == view.RequireDualStack && len(a.Addresses) == 1 && !slices.Contains(s.Ingress, a.Addresses[0]) {
				t.Fatalf("%s requires both families and newly got %v", ref, a.Addresses)
			}
			told := slices.ContainsFunc(problems, func(p problem.Problem) bool { return p.Object == s.Object() })
			if len(a.Addresses) < len(s.Families) && !told {
				t.Fatalf("%s wants %v, got %v, and was told nothing", ref, s.Families, a.Addresses)
			}
		}
	})
}

// checkReservedGift reports whether a reservation of the Service's namespace has the address,
// or several that were made to, and holds that then one was asked for, or it comes by a
// share key.
func checkReservedGift(t *rapid.T, c *view.Cluster, assigned allocation.Assignments, s *view.Service, x netip.Addr) bool {
	asked := slices.Contains(s.Request.Addresses, x) || s.Request.ShareKey != ""
	var holders []view.Ref
	for ref, r := range c.Reservations {
		if ref.Namespace != s.Namespace || !slices.Contains(r.Held, x) && !slices.Contains(assigned.Reservations[ref].Addresses, x) {
			continue
		}
		holders = append(holders, ref)
		asked = asked || slices.Contains(s.Request.Reservations, ref.Name)
	}
	if len(holders) > 0 && !asked {
		t.Fatalf("%s got %s unasked, which is held by reservations %v", s.Ref, x, holders)
	}
	return len(holders) > 0
}

func checkGift(t *rapid.T, c *view.Cluster, s *view.Service, x netip.Addr) {
	p := view.PoolOf(c.PoolsByAge(), x)
	asked := slices.Contains(s.Request.Addresses, x)
	switch {
	case p == nil:
		t.Fatalf("%s got %s, which is in no pool", s.Ref, x)
	case !p.AutoAssign && !asked && !slices.Contains(s.Request.Pools, p.Name):
		t.Fatalf("%s got %s of pool %s unasked", s.Ref, x, p.Name)
	case len(s.Request.Pools) > 0 && !slices.Contains(s.Request.Pools, p.Name):
		t.Fatalf("%s asks for pools %v and got %s of %s", s.Ref, s.Request.Pools, x, p.Name)
	case p.Disabled:
		t.Fatalf("%s got %s of pool %s, which is disabled", s.Ref, x, p.Name)
	case len(p.Namespaces) > 0 && !slices.Contains(p.Namespaces, s.Namespace):
		t.Fatalf("%s got %s of pool %s, which is for %v", s.Ref, x, p.Name, p.Namespaces)
	case p.AvoidBuggyIPs && x.Is4() && (x.As4()[3] == 0 || x.As4()[3] == 255):
		t.Fatalf("%s got %s, which pool %s avoids", s.Ref, x, p.Name)
	}
	for _, older := range c.PoolsByAge() {
		if older == p {
			break
		}
		for _, r := range p.Ranges {
			if slices.ContainsFunc(older.Ranges, r.Overlaps) {
				t.Fatalf("%s got %s of pool %s, which overlaps the older %s", s.Ref, x, p.Name, older.Name)
			}
		}
	}
	for _, want := range s.Request.Addresses {
		if addr.FamilyOf(want) == addr.FamilyOf(x) && !asked {
			t.Fatalf("%s asks for %v and got %s", s.Ref, s.Request.Addresses, x)
		}
	}
}

// TestQuotaIsKept: no namespace comes to have more of a pool than it may, with what cools down for
// it: no other may have that.
func TestQuotaIsKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		for _, p := range c.PoolsByAge() {
			p.CoolDown = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "cool-down")
		}
		for _, a := range rapid.SliceOfNDistinct(addresses(), 0, 4, rapid.ID[netip.Addr]).Draw(t, "cooling") {
			if p := view.PoolOf(c.PoolsByAge(), a); p != nil && p.Contains(a) && p.CoolDown > 0 {
				c.Cooling[a] = view.Ref{Namespace: rapid.SampledFrom([]string{"default", "shop"}).Draw(t, "left by"), Name: rapid.SampledFrom([]string{"s0", "r0", "gone"}).Draw(t, "name")}
			}
		}
		assigned, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		after := applied(c, assigned)
		after.Cooling = maps.Clone(c.Cooling)
		for ref, a := range assigned.Services {
			left(c, after, ref, c.Services[ref].Ingress, a)
		}
		for ref, a := range assigned.Reservations {
			left(c, after, ref, c.Reservations[ref].Held, a)
		}
		for _, p := range c.Pools {
			for _, namespace := range []string{"default", "shop"} {
				was, is := heldOf(c, p, namespace), heldOf(after, p, namespace)
				if p.MaxPerNamespace > 0 && is > p.MaxPerNamespace && is > was {
					t.Fatalf("%s has %d addresses of pool %s, had %d and may have %d", namespace, is, p.Name, was, p.MaxPerNamespace)
				}
			}
		}
	})
}

// left has what an owner gave up cool down where the pool says so.
func left(before, after *view.Cluster, ref view.Ref, had []netip.Addr, has allocation.Assignment) {
	for _, a := range had {
		if p := view.PoolOf(before.PoolsByAge(), a); p != nil && p.Contains(a) && p.CoolDown > 0 && !slices.Contains(has.Addresses, a) {
			after.Cooling[a] = ref
		}
	}
}

// heldOf counts the addresses of a pool that the Services and reservations of a namespace
// show, and those that cool down for it.
func heldOf(c *view.Cluster, p *view.Pool, namespace string) int {
	held := map[netip.Addr]bool{}
	count := func(in string, addrs []netip.Addr) {
		for _, a := range addrs {
			if in == namespace && view.PoolOf(c.PoolsByAge(), a) == p {
				held[a] = true
			}
		}
	}
	for _, s := range c.Services {
		count(s.Namespace, s.Ingress)
	}
	for _, r := range c.Reservations {
		count(r.Namespace, r.Held)
	}
	for a, ref := range c.Cooling {
		count(ref.Namespace, []netip.Addr{a})
	}
	return len(held)
}

// TestFreedIsReused: what a deleted Service held goes to one that waits.
func TestFreedIsReused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "size")
		p := pool("p", 1, fmt.Sprintf("192.0.2.1-192.0.2.%d", size))
		c := cluster([]*view.Pool{p})
		for i := range size + 1 {
			s := service(fmt.Sprintf("s%d", i), i)
			c.Services[s.Ref] = s
		}
		assigned, _ := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		waiting := view.Ref{Namespace: "default", Name: fmt.Sprintf("s%d", size)}
		if got := assigned.Services[waiting].Addresses; len(got) > 0 {
			t.Fatalf("the pool has %d addresses, yet %s got %v", size, waiting, got)
		}
		c = applied(c, assigned)
		gone := view.Ref{Namespace: "default", Name: fmt.Sprintf("s%d", rapid.IntRange(0, size-1).Draw(t, "gone"))}
		delete(c.Services, gone)
		after, problems := allocation.Plan(c, allocation.Assignments{}, view.Classes{})
		if !slices.Equal(after.Services[waiting].Addresses, assigned.Services[gone].Addresses) || len(problems) > 0 {
			t.Fatalf("%s left %v, and %s got %v: %v", gone, assigned.Services[gone].Addresses, waiting, after.Services[waiting].Addresses, problems)
		}
	})
}
