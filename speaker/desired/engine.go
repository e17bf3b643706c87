package desired

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Engine decides for one node again and again, at the cost of what has changed between
// two snapshots of one source. The result depends on the last snapshot alone: a new engine
// decides the same. One goroutine at a time may use it.
type Engine struct {
	options   Options
	seen      uint64 // revision of the last snapshot; 0: none, or one without a number
	zone      string
	node      Node
	keys      map[view.Ref][]PortKey
	claims    claims
	holders   holders
	announcer announcer
	digests   digests
	outside   map[view.Ref][]netip.Addr // endpoints that are pods of this node where none are known to be
	proxied   map[view.Ref][]netip.Addr // the VIPs of Services that another proxy forwards
	peers     []problem.Problem         // of the BGPPeers
	shared    []problem.Problem         // of the ServiceCIDRs that nodes or pods have addresses in
	problems  []problem.Problem
}

// NewEngine returns an engine that has decided nothing yet.
func NewEngine(o Options) *Engine {
	return &Engine{
		options: o,
		node: Node{
			Forwarding: Forwarding{Ports: map[PortKey]Port{}, Count: map[addr.Family]int{}, Foreign: map[view.Ref][]netip.Addr{}},
			Health:     map[view.Ref]HealthCheck{},
		},
		keys:    map[view.Ref][]PortKey{},
		claims:  newClaims(o),
		holders: holders{map[view.Ref]ability{}, view.Index{}},
		outside: map[view.Ref][]netip.Addr{},
		proxied: map[view.Ref][]netip.Addr{},
	}
}

// Decide returns what the node must do by a snapshot, and the problems, sorted, that this node
// sees and no other part reports. Layer2, Elsewhere, BFD and Unnumbered stay valid; the other maps are the
// engine's, which changes them in the next call. The caller changes none.
func (e *Engine) Decide(c *view.Cluster) (Node, []problem.Problem) {
	if c.Revision != 0 && c.Revision == e.seen {
		return e.node, e.problems
	}
	known := e.seen != 0 && c.Since == e.seen
	others, pods := !known || c.Others, e.node.Forwarding.Pods
	everything := !known
	if others {
		everything = e.updateOwn(c) || everything
	}
	changed, moved, again := map[PortKey]struct{}{}, map[netip.Addr]struct{}{}, map[view.Ref]struct{}{}
	foreign := others
	if _, servers := c.Touched[apiServer]; others || servers {
		everything = e.claims.updateOthers(c, again) || everything
		foreign = true
	}
	touched := e.touched(c, everything)
	for ref := range touched {
		e.claims.update(ref, c.Services[ref], again)
	}
	for ref := range e.claims.heldAnew(c, known) {
		e.claims.updateReservation(ref, c.Reservations[ref], again)
	}
	for ref := range again {
		if _, touched := touched[ref]; !touched {
			e.forward(c, ref, changed)
		}
	}
	for ref := range touched {
		e.forward(c, ref, changed)
		foreign = e.updateForeign(ref, c.Services[ref]) || foreign
		replace(e.outside, ref, e.outsiders(c, ref))
		e.holders.update(ref, abilityOf(c, ref, e.options), moved)
	}
	f := &e.node.Forwarding
	if !slices.Equal(pods, f.Pods) {
		e.lookForOutsiders(c)
	}
	if foreign {
		f.ServiceRanges, e.shared = serviceRanges(c, e.options, f.Foreign, e.claims.lifelines)
	}
	if len(changed) > 0 {
		f.Advance(changed)
	}
	f.HealthPorts = healthPorts(e.node.Health)
	if others {
		e.announce(c)
	} else {
		e.reannounce(c, moved)
	}
	if foreign || len(moved)+len(c.Reserved) > 0 {
		f.Refused = e.refused()
	}
	e.problems = slices.Concat(e.peers, e.announcer.unannounced(), e.shared, slices.Concat(slices.Collect(maps.Values(e.claims.lost))...),
		podsUnknown(*f, e.options), e.podsOutside(), ownNode(c, *f, e.options), fallenNodes(c))
	problem.Sort(e.problems)
	e.seen = c.Revision
	return e.node, e.problems
}

// Serves reports whether the node could serve an address as of the last decision, whether or not it is to
// announce it. A node without network serves nothing.
func (e *Engine) Serves(address netip.Addr) bool {
	entry := e.announcer.addresses[address]
	if entry == nil {
		return false
	}
	own := e.announcer.cluster.Nodes[e.options.Node]
	return own != nil && !own.NetworkUnavailable && entry.serves(own.Name)
}

// updateOwn takes over what forwarding depends on of nodes, and reports whether all Services must
// be decided again.
func (e *Engine) updateOwn(c *view.Cluster) bool {
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
	f.Own, f.Echo = addrs, echo(addrs, e.options)
	f.Guard, f.HealthNarrow = len(f.Loopback) > 0, narrowed(e.options)
	return moved
}

func (e *Engine) touched(c *view.Cluster, everything bool) map[view.Ref]struct{} {
	if !everything {
		return c.Touched
	}
	all := make(map[view.Ref]struct{}, len(c.Services))
	for ref := range c.Services {
		all[ref] = struct{}{}
	}
	for ref := range e.claims.services { // those of the last decision
		all[ref] = struct{}{}
	}
	return all
}

// forward decides the ports and the health check of one Service, and notes which ports changed.
func (e *Engine) forward(c *view.Cluster, ref view.Ref, changed map[PortKey]struct{}) {
	f := &e.node.Forwarding
	var ports map[PortKey]Port
	s := c.Services[ref]
	delete(e.node.Health, ref)
	delete(e.claims.lost, ref)
	if s != nil && !s.ProxiedElsewhere {
		from := vantage{e.options.Node, e.zone, c.Fallen}
		s = e.claims.granted(s)
		part, endpoints, told := view.Bounded(s, c.Endpoints.Of(ref), e.options.Node)
		if len(told) > 0 {
			e.claims.lost[ref] = append(e.claims.lost[ref], told...)
		}
		var contradictory map[netip.Addr][]string
		ports, contradictory = portsOf(part, endpoints, from, e.node.Addrs, e.claims.lifelines, e.options)
		if told := ofContradictions(s, contradictory); len(told) > 0 {
			e.claims.lost[ref] = append(e.claims.lost[ref], told...)
		}
		if s.HealthCheckPort != 0 {
			e.node.Health[ref] = healthCheck(s, c.Endpoints.Of(ref), e.options.Node)
		}
	}
	for _, key := range e.keys[ref] {
		if _, stays := ports[key]; !stays {
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
		f.Ports[key] = port
		changed[key] = struct{}{}
	}
	if len(ports) == 0 {
		delete(e.keys, ref)
		return
	}
	e.keys[ref] = slices.Collect(maps.Keys(ports))
}

func (e *Engine) announce(c *view.Cluster) {
	a := &e.announcer
	a.reset(c, e.options, &e.holders)
	sessions, problems := a.sessions()
	e.node.BFD, e.node.Unnumbered = a.bfd(sessions), unnumbered(sessions)
	e.node.BGP, e.node.Mesh, e.peers = sessions, mesh(c, e.options), problems
	e.node.Layer2, e.node.Elsewhere = map[netip.Addr]Candidacy{}, nil
	e.digests = digests{of: make(map[netip.Addr]uint32, len(a.addresses))}
	for address, entry := range a.addresses {
		candidacy, ours := a.candidacy(address, entry)
		if ours {
			e.node.Layer2[address] = candidacy
		} else if len(candidacy.Candidates) > 0 {
			e.node.Elsewhere = append(e.node.Elsewhere, address)
		}
		e.digests.set(address, candidacy)
	}
	slices.SortFunc(e.node.Elsewhere, netip.Addr.Compare)
	e.node.Digests = e.digests.sum
	e.node.Announced.Restart()
}

// reannounce decides what is announced of the addresses of Services that changed, and of those that
// change their first candidate by that. Nothing else differs from the last decision.
func (e *Engine) reannounce(c *view.Cluster, moved map[netip.Addr]struct{}) {
	a := &e.announcer
	a.cluster = c
	if len(moved) == 0 {
		return
	}
	e.node.Layer2, e.node.Elsewhere = maps.Clone(e.node.Layer2), slices.Clone(e.node.Elsewhere)
	pools := make(map[netip.Addr]*view.Pool, len(moved))
	for address := range moved {
		before := a.addresses[address]
		a.look(address)
		a.place(address)
		if now := a.addresses[address]; now != nil {
			pools[address] = now.pool
		} else if before != nil {
			pools[address] = before.pool
		}
	}
	for address := range a.spread.Settle() {
		e.updateCandidacy(address)
	}
	rerouted := map[netip.Prefix]struct{}{}
	for address, pool := range pools {
		e.updateCandidacy(address)
		for name, session := range e.node.BGP {
			a.reroute(name, session, address, pool, rerouted)
		}
	}
	e.node.Digests = e.digests.sum
	e.node.Announced.Advance(rerouted)
}

func (e *Engine) updateCandidacy(address netip.Addr) {
	delete(e.node.Layer2, address)
	at, listed := slices.BinarySearchFunc(e.node.Elsewhere, address, netip.Addr.Compare)
	if listed {
		e.node.Elsewhere = slices.Delete(e.node.Elsewhere, at, at+1)
	}
	entry := e.announcer.addresses[address]
	if entry == nil {
		e.announcer.orders.Forget(address)
		e.digests.set(address, Candidacy{})
		return
	}
	candidacy, ours := e.announcer.candidacy(address, entry)
	if ours {
		e.node.Layer2[address] = candidacy
	} else if len(candidacy.Candidates) > 0 {
		e.node.Elsewhere = slices.Insert(e.node.Elsewhere, at, address)
	}
	e.digests.set(address, candidacy)
}
