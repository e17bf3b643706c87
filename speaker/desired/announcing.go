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

// announcing decides what is announced, for one snapshot and those after it in which
// nothing but Services and endpoints is another.
type announcing struct {
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
	placed  *election.Spread  // of all addresses
	orders  *election.Orders  // of the candidates for each
}

// announced is one address that Services hold, and who can serve it.
type announced struct {
	pool     *view.Pool
	services []*view.Service
	// can tells whether a node can serve, one for each Service that any node can.
	can []func(node string) bool
	// here counts the endpoints on this node of each of these Services whose policy is Local.
	here []int
}

// endpoints are how many new flows to the address may go to by way of this node, as compared
// with others. Under policy Cluster all nodes reach the same ones. Of several Services the one
// with the fewest counts.
func (e *announced) endpoints() int {
	if len(e.here) == 0 {
		return 1
	}
	return slices.Min(e.here)
}

// serves tells whether the node can serve every one of the Services on the address
// that any node can. One that has no endpoints at all takes nothing from the others.
func (e *announced) serves(node string) bool {
	if len(e.can) == 0 {
		return false
	}
	for _, can := range e.can {
		if !can(node) {
			return false
		}
	}
	return true
}

func newAnnouncing(c *view.Cluster, o Options, h *holders, placed *election.Spread, orders *election.Orders) *announcing {
	a := &announcing{
		cluster: c, options: o, holders: h, pools: c.PoolsByAge(),
		addresses: make(map[netip.Addr]*announced, len(h.of)), unready: map[string]bool{},
		scopes: map[string]*scope{}, bounded: bounded(c), placed: placed, orders: orders,
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
		// What a name stands for that nothing has may be what keeps a route from others.
		if resolved, unknown := c.Resolved(ad); len(unknown) == 0 {
			a.routing = append(a.routing, resolved)
		}
	}
	for address := range h.of {
		a.look(address)
	}
	isHeld := func(address netip.Addr) bool { return a.addresses[address] != nil }
	placed.Keep(isHeld)
	orders.Keep(isHeld)
	for address := range a.addresses {
		a.place(address)
	}
	placed.Settle()
	return a
}

// look looks at who holds an address.
func (a *announcing) look(address netip.Addr) {
	delete(a.addresses, address)
	family := addr.FamilyOf(address)
	for _, ref := range a.holders.of[address] {
		if able := a.holders.able[ref]; forwarded(able.service, family) {
			a.add(address, able, family)
		}
	}
}

// announceable tells whether the addresses of a Service are ours to announce: all that are ours
// to allocate, also where another proxy forwards them, by the Service's label or by our mode.
// Nobody else would announce what we gave.
func announceable(s *view.Service, o Options) bool {
	return s.Type == view.LoadBalancer && o.Classes.Serves(s.Class) && len(s.VIPs) > 0
}

// forwarded tells whether a Service has any forwarding in the family. Its status may
// hold an address longer than its spec has the family.
func forwarded(s *view.Service, family addr.Family) bool {
	return len(s.Ports) > 0 && firstOf(s.ClusterIPs, family).IsValid()
}

// add notes that a Service holds the address. An address that no pool holds is
// announced by nobody, since advertisements select by pool.
func (a *announcing) add(address netip.Addr, able ability, family addr.Family) {
	entry := a.addresses[address]
	if entry == nil {
		pool := view.PoolOf(a.pools, address)
		if pool == nil {
			return
		}
		entry = &announced{pool: pool}
		a.addresses[address] = entry
	}
	entry.services = append(entry.services, able.service)
	if can := serving(able.service, able.usable[family]); slices.ContainsFunc(a.nodes, can) {
		entry.can = append(entry.can, can)
		if able.service.ExternalLocal {
			entry.here = append(entry.here, able.here[family])
		}
	}
}

// serving tells which nodes can serve a Service with usable endpoints on some nodes.
// Under policy Cluster every node can as soon as there is one; under Local a node needs
// one of its own.
func serving(s *view.Service, usable []string) func(node string) bool {
	if s.ExternalLocal {
		return func(node string) bool { return slices.Contains(usable, node) }
	}
	return func(string) bool { return len(usable) > 0 }
}

// usable are the nodes with usable endpoints, as far as it matters which they are: under
// policy Cluster one that has no name stands for them, and nothing is announced anew
// when a pod moves.
func usable(s *view.Service, endpoints view.Usable) []string {
	nodes := endpoints.Nodes()
	if len(nodes) > 0 && !s.ExternalLocal {
		return []string{""}
	}
	return nodes
}

// claims are the layer 2 claims of the addresses that this node is a candidate for, and
// the addresses, sorted, for which only others are.
func (a *announcing) claims() (claims map[netip.Addr]Claim, elsewhere []netip.Addr) {
	claims = map[netip.Addr]Claim{}
	for address, entry := range a.addresses {
		if claim, ours := a.claim(address, entry); ours {
			claims[address] = claim
		} else if len(claim.Candidates) > 0 {
			elsewhere = append(elsewhere, address)
		}
	}
	slices.SortFunc(elsewhere, netip.Addr.Compare)
	return claims, elsewhere
}

// claim tells who may answer for an address, and whether this node is among them; if it is
// not, the order means nothing. Nodes that Kubernetes calls not ready come last: they answer
// only where nobody else could.
func (a *announcing) claim(address netip.Addr, entry *announced) (claim Claim, ours bool) {
	in := a.scopeOf(entry)
	candidates := in.nodes
	if slices.ContainsFunc(candidates, func(node string) bool { return !entry.serves(node) }) {
		candidates = nil
		for _, node := range in.nodes {
			if entry.serves(node) {
				candidates = append(candidates, node)
			}
		}
	}
	if _, ours = slices.BinarySearch(candidates, a.options.Node); !ours {
		return Claim{Candidates: candidates}, false
	}
	tiers := a.tiersOf(candidates, in)
	first, _ := a.placed.Node(address)
	if _, able := slices.BinarySearch(candidates, first); !able {
		first = ""
	}
	return Claim{
		Candidates: tiers.Order(a.orders.Rank(address, candidates), first), Tiers: tiers, First: first,
		Interfaces: in.interfaces, Named: named(in.named, candidates), AnnounceInterval: in.interval,
	}, true
}

// named are the candidates of which interfaces are named. Mostly these are all, or none.
func named(nodes, candidates []string) []string {
	isCandidate := func(node string) bool { _, is := slices.BinarySearch(candidates, node); return is }
	if !slices.ContainsFunc(nodes, func(node string) bool { return !isCandidate(node) }) {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return !isCandidate(node) })
}

// tiersOf orders the candidates: those that are ready, then those that the advertisements
// prefer most. Within a tier, the one comes first that has the address so that no node has many
// more than others, then they go by their weights for the address.
func (a *announcing) tiersOf(candidates []string, in *scope) *election.Tiers {
	isAll := len(candidates) == len(in.nodes)
	if isAll && in.tiers != nil {
		return in.tiers
	}
	type tier struct {
		unready   bool
		preferred int
	}
	of := map[tier][]string{}
	for _, node := range candidates {
		t := tier{a.unready[node], in.preferred[node]}
		of[t] = append(of[t], node)
	}
	groups := [][]string{candidates} // itself, for the orders to be compared quickly
	if len(of) > 1 {
		groups = nil
		for _, t := range slices.SortedFunc(maps.Keys(of), func(one, other tier) int {
			if one.unready != other.unready {
				if other.unready {
					return -1
				}
				return 1
			}
			return cmp.Compare(other.preferred, one.preferred)
		}) {
			groups = append(groups, of[t])
		}
	}
	tiers := election.NewTiers(groups...)
	if isAll {
		in.tiers = tiers
	}
	return tiers
}

// interfaces is the union of the interfaces of several advertisements; one that
// names none allows all.
type interfaces struct {
	all  bool
	some map[string]bool
}

func (i *interfaces) add(names []string) {
	if len(names) == 0 {
		i.all = true
	}
	if i.some == nil {
		i.some = map[string]bool{}
	}
	for _, name := range names {
		i.some[name] = true
	}
}

func (i *interfaces) names() []string {
	if i.all {
		return nil
	}
	return slices.Sorted(maps.Keys(i.some))
}

// matchesAll tells whether the selectors match every one of the Services that
// share an address.
func matchesAll(selectors []view.Selector, services []*view.Service) bool {
	for _, s := range services {
		if !view.MatchesAny(selectors, s.Labels) {
			return false
		}
	}
	return true
}

// sessions are this node's BGP sessions and what each announces. A peer that cannot be used, or
// is an older one's router, is a problem and gets no session.
func (a *announcing) sessions() (map[string]Session, []problem.Problem) {
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
		routes := a.routes(peer, node)
		id := identity(peer, node, a.cluster.Adjacent[peer.Interface])
		sessions[peer.Name] = Session{Identity: id, Routes: routes.attrs, Aggregates: routes.aggregates}
	}
	return sessions, problems
}

// identity makes a session's identity. A node without an IPv4 address of its own
// gets a router ID from its name, which is as unique as the hash (RFC 6286 wants
// it unique within the AS, and nothing else of it).
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

// unnumbered is the identity of such a session over an interface.
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

func routerIDFromName(name string) netip.Addr {
	h := fnv.New32a()
	h.Write([]byte(name))
	return netip.AddrFrom4([4]byte(h.Sum(nil)))
}

// unannounced are the Services with addresses while no node may announce any, which
// would otherwise be silence.
func (a *announcing) unannounced() []problem.Problem {
	if len(a.nodes) > 0 {
		return nil
	}
	var problems []problem.Problem
	for address, entry := range a.addresses {
		problems = append(problems, problem.New(entry.services[0].Object(), ReasonNoNode,
			"%s is announced by nobody: every node is without network, or has the label %s or the taint %s; remove them, or have the label ignored by the Helm value speaker.ignoreExcludeLB", address, excludeLabel, outOfServiceTaint))
	}
	return problems
}
