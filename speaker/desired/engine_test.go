package desired_test

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// history draws one cluster after another, each with what changed since the last.
type history struct {
	*rapid.T
	now      *view.Cluster
	services int // at most, and so many addresses
}

// namespaces are those of the Services, by turns.
var namespaces = [2]string{"shop", "evil"}

// next changes some Services and their endpoints, and at times something else.
func (h *history) next() *view.Cluster {
	last := h.now
	c := &view.Cluster{}
	*c = *last
	c.Services = maps.Clone(last.Services)
	c.Changes = view.Changes{Revision: last.Revision + 1, Since: last.Revision, Touched: map[view.Ref]struct{}{}}
	for range rapid.IntRange(0, 3).Draw(h.T, "changes") {
		h.change(c)
	}
	if rapid.IntRange(0, 3).Draw(h.T, "reserves") == 0 {
		h.reserve(c)
	}
	if rapid.IntRange(0, 3).Draw(h.T, "falls") == 0 {
		silent := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"b", "c"}), rapid.ID).Draw(h.T, "silent")
		for _, ref := range c.Endpoints.On(c.Fall(view.RollCall{Alive: []string{"a", "b", "c"}, Silent: silent})) {
			c.Touched[ref] = struct{}{}
		}
	}
	if rapid.IntRange(0, 3).Draw(h.T, "others") == 0 {
		c.Others = true
		c.Nodes = map[string]*view.Node{}
		for name, n := range last.Nodes {
			node := *n
			node.Labels = map[string]string{"topology.kubernetes.io/zone": rapid.SampledFrom([]string{"east", "west"}).Draw(h.T, "zone")}
			node.Excluded = rapid.Bool().Draw(h.T, "excluded")
			node.Addresses = rapid.SampledFrom([][]netip.Addr{nil, ips("198.51.100.1"), ips("198.51.100.2")}).Draw(h.T, "address")
			c.Nodes[name] = &node
		}
		if c.Nodes["a"] == nil {
			c.Nodes["a"] = last.LastOwn
		}
		c.LastOwn = c.Nodes["a"].Remember(last.LastOwn)
		if rapid.IntRange(0, 3).Draw(h.T, "own Node") == 0 {
			delete(c.Nodes, "a")
		}
		c.Pools = map[string]*view.Pool{"all": h.pool()}
		c.BGPAdvertisements = h.advertisements()
		l2 := *last.L2Advertisements["l2"]
		l2.AnnounceInterval = rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(h.T, "announce interval")
		l2.NoPreempt = rapid.Bool().Draw(h.T, "no preemption")
		c.L2Advertisements = map[string]*view.L2Advertisement{l2.Name: &l2}
		c.Speakers = map[string]view.Speaker{"a": {BoundsLoad: true}, "b": {BoundsLoad: rapid.IntRange(0, 3).Draw(h.T, "old") > 0}}
		c.ServiceRanges = rapid.SampledFrom([][]netip.Prefix{nil, prefixes("10.96.0.0/28"), prefixes("198.51.100.0/31")}).Draw(h.T, "ranges")
	}
	h.now = c
	return c
}

// pool is one of all addresses, or of some of them.
func (h *history) pool() *view.Pool {
	return &view.Pool{
		Name: "all", Ranges: rapid.SampledFrom([][]netipx.IPRange{ranges("192.0.2.0/24", "2001:db8::/64"), ranges("192.0.2.0/28", "198.51.100.1-198.51.100.1")}).Draw(h.T, "pool"),
		MaxPerNamespace: rapid.IntRange(0, 1).Draw(h.T, "quota"),
	}
}

// reserve has a reservation come, go, or hold another address.
func (h *history) reserve(c *view.Cluster) {
	ref := view.Ref{Namespace: rapid.SampledFrom(namespaces[:]).Draw(h.T, "holder"), Name: "r"}
	c.Reservations, c.Reserved = maps.Clone(c.Reservations), map[view.Ref]struct{}{ref: {}}
	delete(c.Reservations, ref)
	if rapid.Bool().Draw(h.T, "holds") {
		if c.Reservations == nil {
			c.Reservations = map[view.Ref]*view.Reservation{}
		}
		held := netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(1, h.services+1).Draw(h.T, "held"))})
		c.Reservations[ref] = &view.Reservation{Ref: ref, Held: []netip.Addr{held}}
	}
}

// advertisements are one of all addresses, by prefixes of some length, and one of some.
func (h *history) advertisements() map[string]*view.BGPAdvertisement {
	return map[string]*view.BGPAdvertisement{
		"all": {
			Name: "all", Communities: []uint32{1}, LocalPref: 10, EndpointBandwidth: 100, WithoutEndpoints: rapid.Bool().Draw(h.T, "without endpoints"),
			AggregationLength: map[addr.Family]int{addr.IPv4: rapid.SampledFrom([]int{24, 31, 32}).Draw(h.T, "length")},
		},
		"front": {
			Name: "front", Communities: []uint32{2}, LocalPref: 20, ServiceSelectors: []view.Selector{has("tier", "front")},
			AggregationLength: map[addr.Family]int{addr.IPv4: rapid.SampledFrom([]int{30, 31, 32}).Draw(h.T, "other length")},
		},
	}
}

func (h *history) change(c *view.Cluster) {
	i := rapid.IntRange(1, h.services).Draw(h.T, "service")
	ref := view.Ref{Namespace: namespaces[i%2], Name: fmt.Sprint("web-", i)}
	c.Touched[ref] = struct{}{}
	if rapid.Bool().Draw(h.T, "of the Service") {
		delete(c.Services, ref)
		if rapid.IntRange(0, 3).Draw(h.T, "gone") > 0 {
			s := service()
			s.Ref = ref
			s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(i)})}
			s.VIPs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(1, h.services).Draw(h.T, "vip"))})}
			switch rapid.IntRange(0, 5).Draw(h.T, "external") {
			case 0: // maybe its own ClusterIP or that of another one
				s.ExternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(rapid.IntRange(1, h.services+1).Draw(h.T, "externalIP"))})}
			case 1: // maybe a VIP, of its own or another namespace, or an address that is reserved
				s.ExternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(1, h.services+1).Draw(h.T, "external VIP"))})}
			case 2: // a node's, maybe also a router's
				s.ExternalIPs = ips(rapid.SampledFrom([]string{"198.51.100.1", "198.51.100.2"}).Draw(h.T, "external node"))
				s.Ports[0].Port = rapid.SampledFrom([]uint16{80, 179, 10250}).Draw(h.T, "port")
			case 3:
				s.VIPs = append(s.VIPs, ips("198.51.100.1")...)
			}
			s.Labels = map[string]string{"tier": rapid.SampledFrom([]string{"front", "back"}).Draw(h.T, "tier")}
			s.ExternalLocal = rapid.Bool().Draw(h.T, "local")
			s.SourceRanges = rapid.SampledFrom([][]netip.Prefix{nil, {netip.MustParsePrefix("198.51.100.1/32")}}).Draw(h.T, "ranges")
			s.ProxiedElsewhere = rapid.IntRange(0, 5).Draw(h.T, "elsewhere") == 0
			s.HealthCheckPort = rapid.SampledFrom([]uint16{0, 30000}).Draw(h.T, "health")
			s.Type = rapid.SampledFrom([]view.ServiceType{view.ClusterIP, view.LoadBalancer, view.LoadBalancer, view.LoadBalancer}).Draw(h.T, "type")
			c.Services[ref] = s
		}
		return
	}
	var endpoints []view.Endpoint
	for j := range rapid.IntRange(0, 3).Draw(h.T, "endpoints") {
		e := endpoint(netip.AddrFrom4([4]byte{10, 0, 0, byte(j + 1)}).String(), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(h.T, "node"))
		e.Pod = j%2 == 0
		e.Ready = rapid.Bool().Draw(h.T, "ready")
		e.Hints = rapid.SampledFrom([]*view.Hints{nil, {ForZones: []string{"east"}}, {ForZones: []string{"west"}}}).Draw(h.T, "hint")
		endpoints = append(endpoints, e)
	}
	c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{ref: endpoints})
}

// What an engine says after any history is what one says that sees the last snapshot
// alone, and what it calls changed leads others from state to state, although they may
// have missed some.
func TestAnEngineDependsOnTheLastSnapshotAlone(t *testing.T) {
	numbers := cmp.FilterPath(func(p cmp.Path) bool {
		switch p.Last().String() {
		case ".Revision", ".Since", ".Changed", ".Announced":
			return true
		}
		return false
	}, cmp.Ignore())
	rapid.Check(t, func(t *rapid.T) {
		first := cluster(service())
		first.Services = map[view.Ref]*view.Service{}
		first.Configured = true
		h := &history{t, first, rapid.SampledFrom([]int{4, 20}).Draw(t, "services")}
		first.BGPAdvertisements = h.advertisements()
		first.Speakers = map[string]view.Speaker{"a": {BoundsLoad: true}}
		for i := range h.services { // enough for some to be kept from their first choice
			s := service(at(byte(i + 1)))
			s.Namespace = namespaces[(i+1)%2]
			first.Services[s.Ref] = s
		}
		options := onNode("a")
		options.ExternalIPs = rapid.SampledFrom([]desired.ExternalIPs{desired.AllExternalIPs, desired.PoolExternalIPs}).Draw(t, "external addresses")
		engine := desired.NewEngine(options)
		held, at := map[desired.PortKey]desired.Port{}, uint64(0)
		var followed routing
		for range rapid.IntRange(1, 20).Draw(t, "snapshots") {
			c := h.next()
			if rapid.IntRange(0, 4).Draw(t, "missed") == 0 {
				continue
			}
			got, problems := engine.Decide(c)
			want, wantProblems := fresh(c, options)
			if d := cmp.Diff(want, got, compare, cmpopts.EquateComparable(view.Ref{}), numbers); d != "" {
				t.Fatalf("(-fresh +engine):\n%s", d)
			}
			if d := cmp.Diff(wantProblems, problems, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("problems (-fresh +engine):\n%s", d)
			}
			if rapid.IntRange(0, 4).Draw(t, "holder sleeps") == 0 {
				continue
			}
			for _, change := range got.Forwarding.Changes(held, at, nil) {
				if change.To == nil {
					delete(held, change.Key)
				} else {
					held[change.Key] = *change.To
				}
			}
			at = got.Forwarding.Revision
			if !maps.EqualFunc(held, got.Forwarding.Ports, desired.Port.Equal) {
				t.Fatalf("following the changes gives %v, want %v", held, got.Forwarding.Ports)
			}
			followed.follow(t, got)
		}
	})
}

// routing are the routes of each session, of somebody who looks at those alone that are said to be others.
type routing struct {
	at     uint64
	routes map[string]map[netip.Prefix]desired.RouteAttrs
}

func (r *routing) follow(t *rapid.T, node desired.Node) {
	if r.at == 0 || r.at != node.Announced.Since && r.at != node.Announced.Revision {
		r.routes = map[string]map[netip.Prefix]desired.RouteAttrs{}
		for name, session := range node.BGP {
			r.routes[name] = maps.Clone(session.Routes)
		}
	}
	for prefix := range node.Announced.Changed {
		for name, routes := range r.routes {
			if attrs, ok := node.BGP[name].Routes[prefix]; ok {
				routes[prefix] = attrs
			} else {
				delete(routes, prefix)
			}
		}
	}
	r.at = node.Announced.Revision
	if len(r.routes) != len(node.BGP) {
		t.Fatalf("following the routes gives %d sessions, want %d", len(r.routes), len(node.BGP))
	}
	for name, session := range node.BGP {
		if !maps.EqualFunc(r.routes[name], session.Routes, desired.RouteAttrs.Equal) {
			t.Fatalf("following the routes of %s gives %v, want %v", name, r.routes[name], session.Routes)
		}
	}
}

// A change of one Service among many costs no look at the others: the engine is given
// only that one, and must not have read what it was not told of.
func TestAnEngineLooksAtWhatWasTouched(t *testing.T) {
	one, two := service(), service(at(2)) // which have no address in common
	one.Name, two.Name = "one", "two"
	c := cluster(one)
	c.Services = map[view.Ref]*view.Service{one.Ref: one, two.Ref: two}
	c.Changes = view.Changes{Revision: 1, Others: true}
	engine := desired.NewEngine(onNode("a"))
	engine.Decide(c)
	again := *c
	again.Services = nil // whoever looks at a Service that was not touched finds it gone
	again.Changes = view.Changes{Revision: 2, Since: 1, Touched: map[view.Ref]struct{}{two.Ref: {}}}
	got, _ := engine.Decide(&again)
	for key := range got.Forwarding.Ports {
		if key.Service != one.Ref {
			t.Errorf("%v is still there", key)
		}
	}
	if len(got.Forwarding.Ports) == 0 {
		t.Error("the Service that was not touched is gone")
	}
}

// Under policy Cluster every node can serve wherever the pods are, so that one which
// moves is no reason to decide about all addresses anew.
func TestAPodThatMovesMattersUnderLocalOnly(t *testing.T) {
	for _, isLocal := range []bool{false, true} {
		s := service()
		s.ExternalLocal = isLocal
		c := cluster(s, endpoint("10.0.0.1", "a"))
		c.Changes = view.Changes{Revision: 1, Others: true}
		engine := desired.NewEngine(onNode("a"))
		before, _ := engine.Decide(c)
		moved := *c
		moved.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{s.Ref: {endpoint("10.0.0.2", "b")}})
		moved.Changes = view.Changes{Revision: 2, Since: 1, Touched: map[view.Ref]struct{}{s.Ref: {}}}
		after, _ := engine.Decide(&moved)
		if again := before.Announced.Revision != after.Announced.Revision; again != isLocal {
			t.Errorf("policy Local %t: decided anew: %t", isLocal, again)
		}
	}
}
