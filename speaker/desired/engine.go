package desired

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/election"
)

// For decides what the node must do. The problems are those that this node sees
// and that no other part tells of, sorted.
func For(c *view.Cluster, o Options) (Node, []problem.Problem) { return NewEngine(o).Decide(c) }

// Engine decides for one node again and again, at the cost of what has changed between
// two snapshots of one source. What it says depends on the last snapshot alone: it is
// what For says, whatever came before. One goroutine at a time may use it.
type Engine struct {
	options  Options
	seen     uint64 // revision of the last snapshot; 0: none, or one without a number
	zone     string
	node     Node
	keys     map[view.Ref][]PortKey
	internal clusterIPs
	exposed  map[addr.Family]int // ports that have a NodePort
	holders  holders
	placed   election.Spread
	orders   election.Orders
	say      *announcing  // nil before the first decision
	former   *view.Former // as of the last decision
	fallen   map[string]struct{}
	strange  []problem.Problem // of the BGPPeers
	told     []problem.Problem // by the announcing
	shared   []problem.Problem // of the ranges of ClusterIPs
	problems []problem.Problem
}

// NewEngine makes an engine that has decided nothing yet.
func NewEngine(o Options) *Engine {
	return &Engine{
		options: o,
		node: Node{
			Forwarding: Forwarding{Ports: map[PortKey]Port{}, Count: map[addr.Family]int{}, Foreign: map[view.Ref][]netip.Addr{}},
			Health:     map[view.Ref]HealthCheck{},
		},
		keys: map[view.Ref][]PortKey{}, internal: newClusterIPs(), exposed: map[addr.Family]int{},
		holders: holders{map[view.Ref]ability{}, view.Index{}},
	}
}

// Decide decides for a snapshot. The maps of what it returns are the engine's: they hold
// until the next call, and nobody else may write to them.
func (e *Engine) Decide(c *view.Cluster) (Node, []problem.Problem) {
	if c.Revision != 0 && c.Revision == e.seen {
		return e.node, e.problems
	}
	known := e.seen != 0 && c.Since == e.seen
	others := !known || c.Others
	everything := !known
	if others {
		everything = e.place(c) || everything
	}
	changed, moved := map[PortKey]struct{}{}, map[netip.Addr]struct{}{}
	vacant := others
	touched, again := e.touched(c, everything), map[view.Ref]struct{}{}
	for ref := range touched {
		e.internal.take(ref, c.Services[ref], again)
	}
	for ref := range again {
		if _, touched := touched[ref]; !touched {
			e.forward(c, ref, changed)
		}
	}
	for ref := range touched {
		e.forward(c, ref, changed)
		vacant = e.estrange(ref, c.Services[ref]) || vacant
		e.holders.take(ref, abilityOf(c, ref, e.options), moved)
	}
	if vacant {
		e.vacate(c)
	}
	f := &e.node.Forwarding
	if len(changed) > 0 {
		f.Since, f.Changed = f.Revision, changed
		f.Revision++
	}
	f.HealthPorts = healthPorts(e.node.Health)
	if others {
		e.announce(c)
	} else {
		e.announceAgain(c, moved)
	}
	if c.Configured && (others || c.Former != e.former || !maps.Equal(c.Fallen, e.fallen)) {
		e.former, e.fallen = c.Former, c.Fallen
		e.handAll()
	}
	e.problems = slices.Concat(e.told, e.shared, slices.Collect(maps.Values(e.internal.lost)), strangePods(*f, e.options), ownNode(c, e.exposed, e.options), fallenNodes(c))
	problem.Sort(e.problems)
	e.seen = c.Revision
	return e.node, e.problems
}

// Serves tells whether the node could serve an address as of the last decision, whether or not it is to
// announce it. One that is without network serves nothing.
func (e *Engine) Serves(address netip.Addr) bool {
	entry, own := e.say.addresses[address], e.say.cluster.Nodes[e.options.Node]
	return entry != nil && own != nil && !own.NetworkUnavailable && entry.serves(own.Name)
}

// place takes in what the decision reads of nodes, and tells whether all Services must
// be looked at again.
func (e *Engine) place(c *view.Cluster) bool {
	own := c.OwnNode(e.options.Node)
	zone := ""
	if own != nil {
		zone = own.Labels[zoneLabel]
	}
	addrs := addresses(own)
	moved := zone != e.zone || !slices.Equal(addrs, e.node.Addrs)
	e.zone, e.node.Addrs = zone, addrs
	f := &e.node.Forwarding
	f.Pods = e.options.podPrefixes(c)
	f.NodePorts, f.Loopback = nodePorts(own, e.options)
	f.Guard, f.HealthNarrow = len(f.Loopback) > 0, narrowed(e.options)
	return moved
}

// touched are the Services to look at.
func (e *Engine) touched(c *view.Cluster, everything bool) map[view.Ref]struct{} {
	if !everything {
		return c.Touched
	}
	all := make(map[view.Ref]struct{}, len(c.Services))
	for ref := range c.Services {
		all[ref] = struct{}{}
	}
	for ref := range e.internal.read { // those of the last decision
		all[ref] = struct{}{}
	}
	return all
}

// forward decides for one Service and notes which ports changed.
func (e *Engine) forward(c *view.Cluster, ref view.Ref, changed map[PortKey]struct{}) {
	f := &e.node.Forwarding
	var ports map[PortKey]Port
	s := c.Services[ref]
	delete(e.node.Health, ref)
	delete(e.internal.lost, ref)
	if s != nil && !s.ProxiedElsewhere {
		from := standpoint{e.options.Node, e.zone, c.Fallen}
		ports = portsOf(e.internal.cleared(s), c.Endpoints.Of(ref), from, e.node.Addrs, e.options)
		if s.HealthCheckPort != 0 {
			e.node.Health[ref] = healthCheck(s, c.Endpoints.Of(ref), e.options.Node)
		}
	}
	for _, key := range e.keys[ref] {
		if _, stays := ports[key]; !stays {
			e.expose(f.Ports[key], -1, key.Family)
			delete(f.Ports, key)
			if f.Count[key.Family]--; f.Count[key.Family] == 0 {
				delete(f.Count, key.Family)
			}
			changed[key] = struct{}{}
		}
	}
	for key, port := range ports {
		before, had := f.Ports[key]
		if had && before.Equal(port) {
			continue
		}
		if !had {
			f.Count[key.Family]++
		}
		e.expose(before, -1, key.Family)
		e.expose(port, +1, key.Family)
		f.Ports[key] = port
		changed[key] = struct{}{}
	}
	if len(ports) == 0 {
		delete(e.keys, ref)
		return
	}
	e.keys[ref] = slices.Collect(maps.Keys(ports))
}

// expose counts a port that has a NodePort, by 1 or -1.
func (e *Engine) expose(p Port, by int, family addr.Family) {
	if p.NodePort != 0 {
		e.exposed[family] += by
	}
}

// announce decides what is announced.
func (e *Engine) announce(c *view.Cluster) {
	e.say = newAnnouncing(c, e.options, &e.holders, &e.placed, &e.orders)
	sessions, problems := e.say.sessions()
	e.node.BFD, e.node.Unnumbered = e.say.bfd(sessions), unnumbered(sessions)
	e.node.Layer2, e.node.Elsewhere = e.say.claims()
	e.node.BGP, e.node.Mesh = sessions, mesh(c, e.options)
	e.node.Announcing++
	e.node.Since, e.node.Rerouted = 0, nil
	e.strange = problems
	e.told = slices.Concat(problems, e.say.unannounced())
}

// announceAgain decides what is announced of the addresses whose Services changed, while
// all other things are as they were.
func (e *Engine) announceAgain(c *view.Cluster, moved map[netip.Addr]struct{}) {
	a := e.say
	a.cluster = c
	if len(moved) == 0 {
		return
	}
	e.node.Elsewhere = slices.Clone(e.node.Elsewhere)
	pools := make(map[netip.Addr]*view.Pool, len(moved))
	for address := range moved {
		if before := a.addresses[address]; before != nil {
			pools[address] = before.pool
		}
		a.look(address)
		if now := a.addresses[address]; now != nil {
			pools[address] = now.pool
		}
		a.place(address)
	}
	for address := range a.placed.Settle() {
		if _, known := moved[address]; !known {
			e.claimAgain(address, a.addresses[address])
		}
	}
	rerouted := map[netip.Prefix]struct{}{}
	for address := range moved {
		pool := pools[address]
		if pool == nil {
			continue // no pool has it
		}
		e.claimAgain(address, a.addresses[address])
		for name, session := range e.node.BGP {
			a.reroute(name, session, address, pool, rerouted)
		}
	}
	e.node.Since, e.node.Rerouted = e.node.Announcing, rerouted
	e.node.Announcing++
	e.told = slices.Concat(e.strange, a.unannounced())
}

// claimAgain decides who answers for an address; nil if nobody holds it.
func (e *Engine) claimAgain(address netip.Addr, entry *announced) {
	delete(e.node.Layer2, address)
	defer e.hand(address)
	at, listed := slices.BinarySearchFunc(e.node.Elsewhere, address, netip.Addr.Compare)
	if listed {
		e.node.Elsewhere = slices.Delete(e.node.Elsewhere, at, at+1)
	}
	if entry == nil {
		e.orders.Forget(address)
		return
	}
	if claim, ours := e.say.claim(address, entry); ours {
		e.node.Layer2[address] = claim
	} else if len(claim.Candidates) > 0 {
		e.node.Elsewhere = slices.Insert(e.node.Elsewhere, at, address)
	}
}
