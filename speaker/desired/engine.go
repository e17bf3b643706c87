package desired

import (
	"maps"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
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
	able     map[view.Ref]ability // of the Services that are announced
	told     []problem.Problem    // by the announcing
	problems []problem.Problem
}

// NewEngine makes an engine that has decided nothing yet.
func NewEngine(o Options) *Engine {
	return &Engine{
		options: o,
		node: Node{
			Forwarding: Forwarding{Ports: map[PortKey]Port{}, Count: map[addr.Family]int{}},
			Health:     map[view.Ref]HealthCheck{},
		},
		keys: map[view.Ref][]PortKey{}, able: map[view.Ref]ability{},
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
	announce := others
	changed := map[PortKey]struct{}{}
	for ref := range e.touched(c, everything) {
		e.forward(c, ref, changed)
		announce = e.announces(c, ref) || announce
	}
	f := &e.node.Forwarding
	if len(changed) > 0 {
		f.Since, f.Changed = f.Revision, changed
		f.Revision++
	}
	f.HealthPorts = healthPorts(e.node.Health)
	if announce {
		e.announce(c)
	}
	e.problems = slices.Concat(e.told, strangePods(*f, e.options), fallenNodes(c))
	problem.Sort(e.problems)
	e.seen = c.Revision
	return e.node, e.problems
}

// place takes in what the decision reads of nodes, and tells whether all Services must
// be looked at again.
func (e *Engine) place(c *view.Cluster) bool {
	own := c.Nodes[e.options.Node]
	zone := ""
	if own != nil {
		zone = own.Labels[zoneLabel]
	}
	addrs := addresses(own)
	moved := zone != e.zone || !slices.Equal(addrs, e.node.Addrs)
	e.zone, e.node.Addrs = zone, addrs
	e.node.Forwarding.Pods = pods(c, e.options)
	e.node.Forwarding.NodePorts = nodePorts(own, e.options)
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
	for ref := range e.keys {
		all[ref] = struct{}{}
	}
	for ref := range e.able {
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
	if s != nil && !s.ProxiedElsewhere {
		from := standpoint{e.options.Node, e.zone, c.Fallen}
		ports = portsOf(s, c.Endpoints.Of(ref), from, e.node.Addrs)
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

// ability is all that announcing an address reads of a Service and its endpoints.
type ability struct {
	service *view.Service
	usable  map[addr.Family][]string // from where it is served, see usable
}

// announces tells whether the announcing must be decided anew for what changed in a
// Service. Most changes of endpoints leave it as it is.
func (e *Engine) announces(c *view.Cluster, ref view.Ref) bool {
	before, was := e.able[ref]
	s := c.Services[ref]
	if s == nil || !announceable(s, e.options) {
		delete(e.able, ref)
		return was
	}
	now := ability{s, map[addr.Family][]string{}}
	for _, family := range addr.Families() {
		now.usable[family] = usable(s, c.Endpoints.Of(ref), family)
	}
	e.able[ref] = now
	return !was || before.service != now.service || !maps.EqualFunc(before.usable, now.usable, slices.Equal[[]string])
}

// announce decides what is announced.
func (e *Engine) announce(c *view.Cluster) {
	a := newAnnouncing(c, e.options, e.able)
	sessions, problems := a.sessions()
	e.node.BFD = a.bfd(sessions)
	e.node.Layer2, e.node.Elsewhere = a.claims()
	e.node.BGP, e.node.Mesh = sessions, mesh(c, e.options)
	e.node.Announcing++
	e.told = slices.Concat(problems, a.unannounced())
}
