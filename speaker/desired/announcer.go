package desired

import (
	"cmp"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/peering"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/election"
)

// announcer decides what is announced. It stays valid from one snapshot to the next until something
// other than Services and endpoints changes; then it is reset.
type announcer struct {
	cluster *view.Cluster
	options Options
	holders *holders
	pools   []*view.Pool
	// addresses are those that a pool has and Services hold.
	addresses map[netip.Addr]*announced
	// routing are the BGPAdvertisements that are in use.
	routing []*view.BGPAdvertisement
	nodes   []string // all nodes that may announce at all, sorted
	unready map[string]bool
	scopes  map[string]*scope // by the names of the L2Advertisements
	bounded bool              // load is
	// spread and orders outlive a reset: they cost what changes.
	spread election.Spread
	orders election.Orders // of the candidates for each address
}

// announced is one address that Services hold, and the nodes that can serve it.
type announced struct {
	pool     *view.Pool
	services []*view.Service
	// can reports whether a node can serve, one for each Service that any node can serve.
	can []func(node string) bool
	// here counts the endpoints on this node of each of these Services with policy Local.
	here []int
}

// endpoints counts those that new flows to the address reach by way of this node, for a comparison of
// nodes: under policy Cluster all nodes reach the same ones. Of several Services the one with the fewest
// endpoints counts.
func (e *announced) endpoints() int {
	if len(e.here) == 0 {
		return 1
	}
	return slices.Min(e.here)
}

// serves reports whether the node can serve every one of the Services on the address
// that any node can serve. A Service without any endpoints does not count.
func (e *announced) serves(node string) bool {
	return len(e.can) > 0 && !slices.ContainsFunc(e.can, func(can func(string) bool) bool { return !can(node) })
}

// reset takes over a snapshot in which anything may have changed.
func (a *announcer) reset(c *view.Cluster, o Options, h *holders) {
	*a = announcer{
		cluster: c, options: o, holders: h, pools: c.PoolsByAge(),
		addresses: make(map[netip.Addr]*announced, len(h.of)), unready: map[string]bool{},
		scopes: map[string]*scope{}, bounded: bounded(c), spread: a.spread, orders: a.orders,
	}
	for name, node := range c.Nodes {
		if !node.MayAnnounce() {
			continue
		}
		a.nodes = append(a.nodes, name)
		if !node.Ready || node.Deleting {
			a.unready[name] = true
		}
	}
	slices.Sort(a.nodes)
	for _, ad := range c.BGPAdvertisements {
		// A community that is not known may be the one that keeps a route from other networks.
		if resolved, unknown := c.Resolved(ad); len(unknown) == 0 {
			a.routing = append(a.routing, resolved)
		}
	}
	for address := range h.of {
		a.look(address)
	}
	isHeld := func(address netip.Addr) bool { return a.addresses[address] != nil }
	a.spread.Keep(isHeld)
	a.orders.Keep(isHeld)
	for address := range a.addresses {
		a.place(address)
	}
	a.spread.Settle()
}

// look takes over the Services that hold an address. Of those of several namespaces it is announced for
// the ones that came first, if any node can serve them: what others add, however they are labelled and
// wherever their pods are, changes nothing for these.
func (a *announcer) look(address netip.Addr) {
	delete(a.addresses, address)
	family := addr.FamilyOf(address)
	var holders []ability
	for _, ref := range a.holders.of[address] {
		if able := a.holders.able[ref]; forwarded(able.service, family) {
			holders = append(holders, able)
		}
	}
	slices.SortStableFunc(holders, func(x, y ability) int { return x.service.CompareOn(address, y.service) })
	for len(holders) > 0 {
		host := holders[0].service.Namespace
		entry := a.entry(address, holders, host, family)
		if a.addresses[address] == nil && entry != nil || entry != nil && len(entry.can) > 0 {
			a.addresses[address] = entry
		}
		if entry == nil || len(entry.can) > 0 {
			return
		}
		holders = slices.DeleteFunc(holders, func(able ability) bool { return able.service.Namespace == host })
	}
}

// announceable reports whether Fairlead announces the addresses of a Service: all that it
// allocates, also where another proxy forwards them, by the Service's label or by the mode of
// forwarding. No other program would announce them.
func announceable(s *view.Service, o Options) bool {
	return s.Type == view.LoadBalancer && o.Classes.Serves(s.Class) && len(s.VIPs) > 0
}

// forwarded reports whether a Service has any forwarding in the family. Its status may
// list an address longer than its spec has the family.
func forwarded(s *view.Service, family addr.Family) bool {
	return len(s.Ports) > 0 && firstOf(s.ClusterIPs, family).IsValid()
}

// entry is the address as those of its holders have it that are of one namespace; nil if no pool
// holds it: it is not announced, since advertisements select by pool.
func (a *announcer) entry(address netip.Addr, holders []ability, host string, family addr.Family) *announced {
	pool := view.PoolOf(a.pools, address)
	if pool == nil {
		return nil
	}
	entry := &announced{pool: pool}
	for _, able := range holders {
		if able.service.Namespace != host {
			continue
		}
		entry.services = append(entry.services, able.service)
		if can := serving(able.service, able.usable[family]); slices.ContainsFunc(a.nodes, can) {
			entry.can = append(entry.can, can)
			if able.service.ExternalLocal {
				entry.here = append(entry.here, able.here[family])
			}
		}
	}
	return entry
}

// serving reports which nodes can serve a Service with usable endpoints on some nodes.
// Under policy Cluster every node can as soon as there is one; under Local a node needs
// one of its own.
func serving(s *view.Service, usable []string) func(node string) bool {
	if s.ExternalLocal {
		return func(node string) bool { return slices.Contains(usable, node) }
	}
	return func(string) bool { return len(usable) > 0 }
}

// usable are the nodes with usable endpoints. Under policy Cluster it does not matter which they are:
// one without a name stands for them, and nothing is announced anew when a pod moves.
func usable(s *view.Service, endpoints view.Usable) []string {
	nodes := endpoints.Nodes()
	if len(nodes) > 0 && !s.ExternalLocal {
		return []string{""}
	}
	return nodes
}

// candidacy returns which nodes may answer for an address, and whether this node is among them; if it is
// not, the candidates are not in order. Nodes that Kubernetes calls not ready come last: they answer
// only where no other node could.
func (a *announcer) candidacy(address netip.Addr, entry *announced) (candidacy Candidacy, ours bool) {
	in := a.scopeOf(entry)
	candidates := only(in.nodes, entry.serves)
	candidacy = Candidacy{
		Candidates: candidates, Tiers: a.tiersOf(candidates, in),
		Interfaces: in.interfaces, AnnounceInterval: in.interval, NoPreempt: in.noPreempt,
		Named: only(in.named, func(node string) bool { _, is := slices.BinarySearch(candidates, node); return is }),
	}
	first, _ := a.spread.Node(address)
	if _, able := slices.BinarySearch(candidates, first); able {
		candidacy.First = first
	}
	if _, ours = slices.BinarySearch(candidates, a.options.Node); ours { // or the order would cost memory for nothing
		candidacy.Candidates = candidacy.Tiers.Order(a.orders.Rank(address, candidates), candidacy.First)
	}
	return candidacy, ours
}

// only returns the nodes that are wanted: mostly all, which are not copied then.
func only(nodes []string, wanted func(node string) bool) []string {
	unwanted := func(node string) bool { return !wanted(node) }
	if !slices.ContainsFunc(nodes, unwanted) {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), unwanted)
}

// tiersOf orders the candidates: those that are ready, then those that the advertisements
// prefer most. Within a tier, the node that the matching gives the address comes first, then the weights
// for the address decide.
func (a *announcer) tiersOf(candidates []string, in *scope) *election.Tiers {
	isAll := len(candidates) == len(in.nodes)
	if isAll && in.tiers != nil {
		return in.tiers
	}
	of := map[int][]string{}
	for _, node := range candidates {
		tier := -in.preferred[node]
		if a.unready[node] {
			tier += 1 << 30 // more than all weights
		}
		of[tier] = append(of[tier], node)
	}
	groups := [][]string{candidates} // itself, for the orders to be compared quickly
	if len(of) > 1 {
		groups = nil
		for _, tier := range slices.Sorted(maps.Keys(of)) {
			groups = append(groups, of[tier])
		}
	}
	tiers := election.NewTiers(groups...)
	if isAll {
		in.tiers = tiers
	}
	return tiers
}

// matchesAll reports whether the selectors match every one of the Services that
// share an address.
func matchesAll(selectors []view.Selector, services []*view.Service) bool {
	return !slices.ContainsFunc(services, func(s *view.Service) bool { return !view.MatchesAny(selectors, s.Labels) })
}

// sessions returns this node's BGP sessions with their routes. A peer that cannot be used, or
// that is the router of an older peer, is a problem and gets no session.
func (a *announcer) sessions() (map[string]Session, []problem.Problem) {
	node := a.cluster.Nodes[a.options.Node]
	if node == nil {
		return nil, nil
	}
	peers := peering.ByAge(a.cluster)
	held, problems := peering.Held(node, peers)
	for _, peer := range peers {
		if peer.Unusable != nil && view.MatchesAny(peer.NodeSelectors, node.Labels) {
			problems = append(problems, *peer.Unusable)
		}
	}
	sessions := map[string]Session{}
	for _, peer := range held {
		session := a.routes(peer, node)
		session.Identity = identity(peer, node, a.cluster.Adjacent[peer.Interface])
		sessions[peer.Name] = session
	}
	return sessions, problems
}

// identity makes a session's identity. A node without an IPv4 address of its own
// gets a router ID from its name, which is as unique as the hash (RFC 6286 asks
// only that it is unique within the AS).
func identity(peer *view.BGPPeer, node *view.Node, adjacent view.Adjacency) Identity {
	id := Identity{
		MyASN: peer.MyASN, PeerASN: peer.PeerASN, DynamicASN: peer.DynamicASN,
		PeerAddress: peer.PeerAddress, PeerPort: peer.PeerPort, Passive: peer.Passive,
		SourceAddress: peer.SourceAddress, RouterID: peer.RouterID,
		HoldTime: peer.HoldTime, KeepaliveTime: peer.KeepaliveTime, ConnectTime: peer.ConnectTime,
		EBGPMultiHop: peer.EBGPMultiHop, TTLSecurity: peer.TTLSecurity, OneFamily: peer.OneFamily,
		GracefulRestart: peer.GracefulRestart, Password: peer.Password,
		NextHop4: firstOf(node.Addresses, addr.IPv4), NextHop6: firstOf(node.Addresses, addr.IPv6),
	}
	if peer.Interface != "" {
		id = id.unnumbered(peer.Interface, adjacent)
	}
	if !id.RouterID.IsValid() {
		id.RouterID = id.NextHop4
	}
	if !id.RouterID.IsValid() {
		id.RouterID = routerIDFromName(node.Name)
	}
	return id
}

func (id Identity) unnumbered(over string, adjacent view.Adjacency) Identity {
	id.Interface = over
	if adjacent.Router.IsValid() {
		id.PeerAddress, id.SourceAddress = adjacent.Router, adjacent.Local
		return id
	}
	id.NoRouter = cmp.Or(adjacent.Trouble, "no router advertises itself on interface "+over+
		": have it send router advertisements there (RFC 4861), as FRR does where it has a neighbor with this interface")
	return id
}

// routerIDFromName returns one that looks like the address of a host, as RFC 4271, 6.2, asks for, and routers do that are older than RFC 6286.
func routerIDFromName(name string) netip.Addr {
	h := fnv.New32a()
	h.Write([]byte(name))
	id := [4]byte(h.Sum(nil))
	if first := id[0]; first == 0 || first == 127 || first >= 224 {
		id[0] = 1 + first%126
	}
	return netip.AddrFrom4(id)
}

// unannounced returns a problem of each address while no node may announce any.
func (a *announcer) unannounced() []problem.Problem {
	if len(a.nodes) > 0 {
		return nil
	}
	var problems []problem.Problem
	for address, entry := range a.addresses {
		problems = append(problems, problem.New(entry.services[0].Object(), ReasonNoNode,
			"%s is announced by nobody: every node is without network, has the label %s or the taint %s, or is about to be deleted by an autoscaler; "+
				"remove them, or have the label ignored by the Helm value speaker.ignoreExcludeLB", address, excludeLabel, outOfServiceTaint))
	}
	return problems
}
