package allocation

import (
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Engine plans for one cluster again and again, at the cost of what has changed between two
// snapshots of one source. What it says depends on the last snapshot alone: it is what
// Plan, Users, Count and Extent say, whatever came before. One goroutine at a time may use
// it.
//
// It keeps apart the Services that nobody needs to decide about, which is most of them:
// see resting. A Service is awake, and planned for, when it was touched or when another one
// claims its address, and until it may rest again. New pools wake all.
type Engine struct {
	classes view.Classes
	seen    uint64 // revision of the last snapshot; 0: none, or one without a number

	pools    map[string]*view.Pool // those of the last snapshot
	nodes    map[string]*view.Node
	ranges   []netip.Prefix
	stock    *stock
	occupied map[netip.Addr]view.Use

	awake    map[view.Ref]*view.Service
	resting  *resting
	assigned map[view.Ref]Assignment
}

// Outcome is what is decided over one snapshot, with these assignments in place.
type Outcome struct {
	Assigned Assignments
	Problems []problem.Problem
	Users    map[netip.Addr][]view.Ref
	Usage    map[string]Usage
	Extent   map[string][]netipx.IPRange
	// Occupied are the addresses of pools that the cluster itself uses, and what for.
	Occupied map[netip.Addr]view.Use
	// Looked are the Services that were looked at: all others, and what is assigned to
	// them, are what they were the last time. nil: any of them may have changed.
	Looked map[view.Ref]struct{}
}

// NewEngine makes an engine that has planned nothing yet.
func NewEngine(classes view.Classes) *Engine { return &Engine{classes: classes} }

// Plan plans for a snapshot. What it returns holds until the next call, and nobody else may
// write to it.
func (e *Engine) Plan(c *view.Cluster, assumed Assignments) Outcome {
	var o Outcome
	if whole := e.follow(c); !whole {
		o.Looked = make(map[view.Ref]struct{}, len(c.Touched)+len(e.awake))
		for ref := range c.Touched {
			o.Looked[ref] = struct{}{}
		}
	}
	claims := e.contest(assumed.Services)
	for ref, s := range e.awake {
		if o.Looked != nil {
			o.Looked[ref] = struct{}{}
		}
		delete(e.assigned, ref)
		if _, unseen := assumed.Services[ref]; !unseen && e.mayRest(s, claims) {
			e.rest(s)
		}
	}
	e.stock.rewind(e.resting)
	sc := &scene{c, e.awake, e.resting, e.stock, e.occupied}
	o.Assigned = Assignments{Services: e.assigned, Reservations: make(map[view.Ref]Assignment, len(c.Reservations))}
	o.Problems = sc.plan(assumed, e.classes, o.Assigned)
	o.Users, o.Usage, o.Extent, o.Occupied = sc.users(o.Assigned), sc.count(o.Assigned), sc.extent(o.Assigned), e.occupied
	return o
}

// follow takes in what has changed, and tells whether that may be anything.
func (e *Engine) follow(c *view.Cluster) (whole bool) {
	same := c.Revision != 0 && c.Revision == e.seen
	known := same || e.seen != 0 && c.Since == e.seen
	e.seen = c.Revision
	if !known || !maps.Equal(c.Pools, e.pools) || !slices.Equal(c.ServiceRanges, e.ranges) {
		e.pools, e.nodes, e.ranges = c.Pools, c.Nodes, c.ServiceRanges
		e.stock = newStock(c)
		e.occupied = e.stock.occupied(c)
		e.awake, e.resting, e.assigned = maps.Clone(c.Services), newResting(), make(map[view.Ref]Assignment, len(c.Services))
		return true
	}
	if same {
		return false
	}
	moved := c.Others && !maps.Equal(c.Nodes, e.nodes)
	for ref := range c.Touched {
		before := e.wake(ref)
		now := c.Services[ref]
		moved = moved || stray(c, before) || stray(c, now)
		if now != nil {
			e.awake[ref] = now
		} else {
			delete(e.awake, ref)
			delete(e.assigned, ref)
		}
	}
	if e.nodes = c.Nodes; moved || len(c.ServiceRanges) == 0 {
		e.occupied = e.stock.occupied(c)
	}
	return false
}

// stray tells whether a Service, nil for none, has a ClusterIP that is in no range of these.
func stray(c *view.Cluster, s *view.Service) bool {
	return s != nil && slices.ContainsFunc(s.ClusterIPs, func(a netip.Addr) bool { return !c.ServiceRange(a).IsValid() })
}

// wake makes sure that a Service is awake, and returns it as it was known; nil for one that
// was not.
func (e *Engine) wake(ref view.Ref) *view.Service {
	s := e.resting.services[ref]
	if s == nil {
		return e.awake[ref]
	}
	e.resting.remove(s, e.stock)
	e.awake[ref] = s
	return s
}

// rest puts a Service to rest.
func (e *Engine) rest(s *view.Service) {
	delete(e.awake, s.Ref)
	e.resting.add(s, e.stock)
	if decides(s, e.classes) {
		e.assigned[s.Ref] = Assignment{Addresses: s.Ingress}
	}
}

// contest counts which Services claim the addresses of those that are awake, and wakes all
// whose address another one claims. Reservations take nothing from a Service.
func (e *Engine) contest(assumed map[view.Ref]Assignment) map[netip.Addr]int {
	claims := make(map[netip.Addr]int, len(e.awake))
	const decided = 2 // nobody rests on it
	claim := func(addresses []netip.Addr, weight int) (woken []*view.Service) {
		for _, a := range addresses {
			claims[a] += weight
			if s := e.resting.on[a]; s != nil {
				woken = append(woken, e.wake(s.Ref))
			}
		}
		return woken
	}
	for ref, a := range assumed {
		e.wake(ref)
		claim(a.Addresses, decided)
	}
	for queue := slices.Collect(maps.Values(e.awake)); len(queue) > 0; queue = queue[1:] {
		queue = append(queue, claim(queue[0].Ingress, 1)...)
	}
	return claims
}

// mayRest tells whether a Service that is awake may rest.
func (e *Engine) mayRest(s *view.Service, claims map[netip.Addr]int) bool {
	alone := !slices.ContainsFunc(s.Ingress, func(a netip.Addr) bool { return claims[a] > 1 })
	return alone && e.stock.restful(s, decides(s, e.classes))
}
