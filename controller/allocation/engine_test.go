package allocation_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

func shown() *rapid.Generator[netip.Addr] {
	return rapid.OneOf(addresses(), addresses(), addresses(), rapid.Just(netip.MustParseAddr("127.0.0.1")))
}

// history draws one cluster after another, each with what changed since the last.
type history struct {
	*rapid.T
	now     *view.Cluster
	assumed allocation.Assignments
	// plan is what was decided over the cluster as it is now.
	plan allocation.Assignments
}

// next changes some Services, and at times something else.
func (h *history) next() {
	last := h.now
	c := &view.Cluster{}
	*c = *last
	c.Services = maps.Clone(last.Services)
	c.Changes = view.Changes{Revision: last.Revision + 1, Since: last.Revision, Touched: map[view.Ref]struct{}{}}
	for range rapid.IntRange(0, 3).Draw(h.T, "changes") {
		h.change(c)
	}
	for _, ref := range sortedRefs(c.Services) {
		if rapid.IntRange(0, 2).Draw(h.T, "written") > 0 {
			h.show(c, ref)
		}
	}
	if rapid.IntRange(0, 1).Draw(h.T, "others") == 0 {
		h.others(c)
	}
	c.Cooling = map[netip.Addr]view.Ref{}
	if rapid.IntRange(0, 3).Draw(h.T, "left") == 0 {
		c.Cooling[addresses().Draw(h.T, "cooling")] = h.ref()
	}
	h.now = c
	h.assumed = allocation.Assignments{Services: map[view.Ref]allocation.Assignment{}, Reservations: map[view.Ref]allocation.Assignment{}}
	for _, ref := range sortedRefs(c.Services) {
		if a, planned := h.plan.Services[ref]; planned && !slices.Equal(a.Addresses, c.Services[ref].Ingress) && rapid.Bool().Draw(h.T, "under way") {
			h.assumed.Services[ref] = a
		}
	}
	for _, ref := range sortedRefs(c.Reservations) {
		if a, planned := h.plan.Reservations[ref]; planned && rapid.IntRange(0, 3).Draw(h.T, "reservation under way") == 0 {
			h.assumed.Reservations[ref] = a
		}
	}
}

func sortedRefs[V any](of map[view.Ref]V) []view.Ref {
	return slices.SortedFunc(maps.Keys(of), view.Ref.Compare)
}

func (h *history) ref() view.Ref {
	return view.Ref{
		Namespace: rapid.SampledFrom([]string{"default", "shop"}).Draw(h.T, "namespace"),
		Name:      fmt.Sprintf("s%d", rapid.IntRange(0, 5).Draw(h.T, "service")),
	}
}

// change creates or edits a Service, or deletes it. Most are plain, so that some are at rest.
func (h *history) change(c *view.Cluster) {
	ref := h.ref()
	c.Touched[ref] = struct{}{}
	s := service(ref.Name, rapid.IntRange(0, 5).Draw(h.T, "age"))
	s.Namespace = ref.Namespace
	s.ClusterIPs = parse("10.96.0.1")
	if before := c.Services[ref]; before != nil {
		*s = *before
	}
	r := &s.Request
	switch rapid.SampledFrom([]string{
		"", "", "gone", "anew", "key", "pools", "reservations", "addresses", "conflict", "status", "families", "ClusterIP", "external IP", "class",
	}).Draw(h.T, "what") {
	case "gone":
		delete(c.Services, ref)
		return
	case "anew":
		s = drawService(h.T, ref.Name)
		s.Namespace = ref.Namespace
	case "key":
		r.ShareKey = view.Secret(rapid.SampledFrom([]string{"", "k"}).Draw(h.T, "key"))
	case "pools":
		r.Pools = rapid.SampledFrom([][]string{nil, {"p0"}, {"p1", "p0"}}).Draw(h.T, "asked pools")
	case "reservations":
		r.Reservations = rapid.SampledFrom([][]string{nil, {"r0"}}).Draw(h.T, "asked reservations")
	case "addresses":
		r.Addresses = append(slices.Clone(s.Ingress), addresses().Draw(h.T, "asked"))[rapid.IntRange(0, len(s.Ingress)).Draw(h.T, "besides"):]
	case "conflict":
		r.Conflicts = rapid.SampledFrom([][]string{nil, {"a conflict"}}).Draw(h.T, "conflict")
	case "status":
		s.Ingress = rapid.SliceOfNDistinct(shown(), 0, 2, rapid.ID[netip.Addr]).Draw(h.T, "shown")
	case "families":
		s.Families = rapid.Permutation(addr.Families()).Draw(h.T, "families")
	case "ClusterIP":
		s.ClusterIPs = parse(rapid.SampledFrom([]string{"10.96.0.1", "192.0.2.1", "10.0.0.0"}).Draw(h.T, "ClusterIP"))
	case "external IP":
		s.ExternalIPs = rapid.SampledFrom([][]netip.Addr{nil, parse("192.0.2.1"), parse("192.0.2.2", "2001:db8::1")}).Draw(h.T, "external IPs")
	case "class":
		s.Class = classes().Draw(h.T, "class")
	}
	c.Services[ref] = s
}

// show is the informer showing a Service with the addresses that were decided.
func (h *history) show(c *view.Cluster, ref view.Ref) {
	a, planned := h.plan.Services[ref]
	if !planned || slices.Equal(a.Addresses, c.Services[ref].Ingress) && slices.Equal(a.Guest, c.Services[ref].Guest) {
		return
	}
	s := *c.Services[ref]
	s.Ingress, s.Guest = a.Addresses, a.Guest
	c.Services[ref] = &s
	c.Touched[ref] = struct{}{}
}

// pools draws pools, one of them with addresses that no Service can have.
func (h *history) pools(c *view.Cluster) {
	loopback := pool("p9", 9, "127.0.0.0/31")
	c.Pools = map[string]*view.Pool{loopback.Name: loopback}
	for i := range rapid.IntRange(0, 3).Draw(h.T, "pools") {
		p := drawPool(h.T, fmt.Sprintf("p%d", i))
		p.NamespaceSelectors = rapid.SampledFrom([][]view.Selector{nil, nil, {labelled("tenant")}}).Draw(h.T, "selectors")
		c.Pools[p.Name] = p
	}
}

func (h *history) reservations(c *view.Cluster) {
	c.Reservations = map[view.Ref]*view.Reservation{}
	for i := range rapid.IntRange(0, 2).Draw(h.T, "reservations") {
		r := drawReservation(h.T, fmt.Sprintf("r%d", i))
		c.Reservations[r.Ref] = r
	}
}

func (h *history) ranges(c *view.Cluster) {
	c.ServiceRanges = rapid.SampledFrom([][]netip.Prefix{
		{netip.MustParsePrefix("10.96.0.0/16")}, {netip.MustParsePrefix("192.0.2.0/31")}, nil,
	}).Draw(h.T, "ranges")
	c.ClusterIPs = nil
	if len(c.ServiceRanges) == 0 {
		c.ClusterIPs = map[view.Ref][]netip.Addr{{Namespace: "other", Name: "s"}: {addresses().Draw(h.T, "ClusterIP of another")}}
	}
}

// prefixes draws where pods are from, and the networks of nodes.
func (h *history) prefixes(c *view.Cluster) {
	some := func(label string) []netip.Prefix {
		return rapid.SampledFrom([][]netip.Prefix{
			nil,
			{netip.MustParsePrefix("192.0.2.0/31"), netip.MustParsePrefix("2001:db8::/127")},
			{netip.MustParsePrefix("192.0.2.0/29"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/120")},
		}).Draw(h.T, label)
	}
	c.PodRanges, c.Networks = some("pods"), some("networks")
}

// others draws something anew that is no Service.
func (h *history) others(c *view.Cluster) {
	c.Others = true
	switch rapid.IntRange(0, 11).Draw(h.T, "what else") {
	case 0:
		h.pools(c)
	case 1, 2, 3, 4:
		h.reservations(c)
	case 5:
		h.ranges(c)
		c.Touched[view.Ref{Namespace: "other", Name: "s"}] = struct{}{}
	case 6:
		c.Namespaces = rapid.SampledFrom([]map[string]map[string]string{
			nil, {"default": {"tenant": "a"}}, {"default": nil, "shop": {"tenant": "b"}},
		}).Draw(h.T, "namespaces")
	case 7:
		h.prefixes(c)
	case 8:
		c.BGPPeers = map[string]*view.BGPPeer{"tor": {PeerAddress: addresses().Draw(h.T, "router")}}
		c.APIServers = []netip.Addr{addresses().Draw(h.T, "API server")}
		c.ExternalIPs = map[view.Ref][]netip.Addr{{Namespace: "other", Name: "e"}: {addresses().Draw(h.T, "external IP of another")}}
	default:
		c.Nodes = map[string]*view.Node{"a": {Name: "a", Addresses: []netip.Addr{addresses().Draw(h.T, "node")}}}
	}
}

// What an engine says after any history is what is decided from nothing over the last
// snapshot alone, and the Services that it did not look at have what they had.
func TestAnEngineDependsOnTheLastSnapshotAlone(t *testing.T) {
	t.Parallel()
	same := cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, view.Ref{}, netipx.IPRange{}, view.Use{}, view.PoolUse{}), cmpopts.IgnoreUnexported(view.Occupied{})}
	rapid.Check(t, func(t *rapid.T) {
		h := &history{T: t, now: cluster(nil)}
		h.pools(h.now)
		h.reservations(h.now)
		h.ranges(h.now)
		engine := allocation.NewEngine(view.Classes{})
		for range rapid.IntRange(1, 30).Draw(t, "snapshots") {
			h.next()
			before, had := maps.Clone(h.plan.Services), h.now.Since
			want, problems := allocation.Plan(h.now, h.assumed, view.Classes{})
			h.plan = want
			if rapid.IntRange(0, 9).Draw(t, "missed") == 0 {
				continue
			}
			got := engine.Plan(h.now, h.assumed)
			for ref, a := range got.Assigned.Services {
				if _, looked := got.Looked[ref]; got.Looked != nil && !looked && !slices.Equal(before[ref].Addresses, a.Addresses) {
					t.Fatalf("since revision %d %s got %v in place of %v and was not looked at", had, ref, a.Addresses, before[ref].Addresses)
				}
			}
			got.Looked = nil
			if d := cmp.Diff(allocation.Outcome{
				Assigned: want, Problems: problems,
				Users: allocation.Users(h.now, want), Usage: allocation.Count(h.now, want), Extent: allocation.Extent(h.now, want),
				Occupied: occupied(h.now), Waiting: waiting(want),
			}, got, same); d != "" {
				t.Fatalf("revision %d (-from nothing +engine):\n%s", h.now.Revision, d)
			}
		}
	})
}

func waiting(plan allocation.Assignments) (n int) {
	for _, a := range plan.Services {
		if len(a.Addresses) == 0 {
			n++
		}
	}
	return n
}

// occupied are the addresses of pools that the cluster itself uses.
func occupied(c *view.Cluster) view.Occupied {
	pools := c.PoolsByAge()
	ranges := slices.DeleteFunc(c.UsedRanges(), func(u view.Use) bool {
		return !slices.ContainsFunc(pools, func(p *view.Pool) bool { return slices.ContainsFunc(p.Ranges, netipx.RangeOfPrefix(u.Prefix).Overlaps) })
	})
	return c.Occupied(func(a netip.Addr) *view.Pool {
		i := slices.IndexFunc(pools, func(p *view.Pool) bool { return p.Contains(a) })
		if i < 0 {
			return nil
		}
		return pools[i]
	}, ranges)
}

// A change of one Service among many costs no look at the others: the engine is given only
// that one, and must not have read what it was not told of.
func TestAnEngineLooksAtWhatWasTouched(t *testing.T) {
	t.Parallel()
	one, two := service("one", 0, holds("192.0.2.1")), service("two", 1)
	c := cluster([]*view.Pool{pool("p", 0, "192.0.2.0/28")}, one, two)
	c.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	c.Changes = view.Changes{Revision: 1, Others: true}
	engine := allocation.NewEngine(view.Classes{})
	engine.Plan(c, allocation.Assignments{})
	again := *c
	again.Services = map[view.Ref]*view.Service{two.Ref: service("two", 1)} // whoever looks at the other finds it gone
	again.Changes = view.Changes{Revision: 2, Since: 1, Touched: map[view.Ref]struct{}{two.Ref: {}}}
	got := engine.Plan(&again, allocation.Assignments{})
	if d := cmp.Diff(map[view.Ref]struct{}{two.Ref: {}}, got.Looked, cmpopts.EquateComparable(view.Ref{})); d != "" {
		t.Errorf("looked at (-want +got):\n%s", d)
	}
	for ref, want := range map[view.Ref]string{one.Ref: "192.0.2.1", two.Ref: "192.0.2.0"} {
		if a := got.Assigned.Services[ref].Addresses; len(a) != 1 || a[0].String() != want {
			t.Errorf("%s has %v, want %s", ref, a, want)
		}
	}
	if used := got.Usage["p"].IPv4.Assigned; used != 2 {
		t.Errorf("%d addresses are in use, want 2", used)
	}
}

// What is on its way to one Service is not for another to rest on, whatever its status says.
func TestNobodyRestsOnWhatIsAssumed(t *testing.T) {
	t.Parallel()
	older, younger := service("older", 0), service("younger", 1, holds("192.0.2.1"))
	c := cluster([]*view.Pool{pool("p", 0, "192.0.2.0/28")}, older, younger)
	c.Changes = view.Changes{Revision: 1, Others: true}
	engine := allocation.NewEngine(view.Classes{})
	engine.Plan(c, allocation.Assignments{})
	c.Changes = view.Changes{Revision: 2, Since: 1}
	assumed := allocation.Assignments{Services: map[view.Ref]allocation.Assignment{older.Ref: {Addresses: parse("192.0.2.1")}}}
	got := engine.Plan(c, assumed)
	want, problems := allocation.Plan(c, assumed, view.Classes{})
	if a := want.Services[younger.Ref].Addresses; slices.Contains(a, parse("192.0.2.1")[0]) {
		t.Fatalf("two have %v", a)
	}
	if d := cmp.Diff(want, got.Assigned, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, view.Ref{})); d != "" {
		t.Errorf("(-from nothing +engine):\n%s", d)
	}
	if d := cmp.Diff(problems, got.Problems, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("problems (-from nothing +engine):\n%s", d)
	}
}
