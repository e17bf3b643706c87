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
// snapshots of one source. One goroutine at a time may use it.
//
// Most Services need no decision: see settled. A Service is active, and planned for, once
// it was touched or another one shows its address, and until it settles again. New pools
// make all Services active.
type Engine struct {
	classes view.Classes
	seen    uint64 // revision of the last snapshot; 0: none, or one without a number

	pools  map[string]*view.Pool // those of the last snapshot
	others others
	ranges []view.Use
	free   *freeList

	active   map[view.Ref]*view.Service
	settled  *settled
	assigned map[view.Ref]Assignment
}

// Outcome is the decision over one snapshot, and what holds with these assignments in place.
type Outcome struct {
	Assigned Assignments
	Problems []problem.Problem
	// Users are the Services on addresses of reservations, sorted.
	Users map[netip.Addr][]view.Ref
	// Usage is by pool. An address that several hold counts once, one in two pools for the
	// older one, and one that an edit has taken out as assigned while it is held. A pool that
	// is blocked by an older one, or disabled, has nothing available; what cools down, or the
	// cluster itself uses, is not available either.
	Usage map[string]Usage
	// Extent is, by pool, its ranges and the addresses held or shown of those that an edit has
	// taken out. The status of the pool shows it, so that the pool of an address stays known.
	Extent map[string][]netipx.IPRange
	// Occupied are the addresses of pools that the cluster itself uses, and what for.
	Occupied view.Occupied
	// Waiting is how many of the Services with an assignment have no address.
	Waiting int
	// Looked are the Services that were planned for: all others, and their assignments, are
	// what they were the last time. nil: any of them may have changed.
	Looked map[view.Ref]struct{}
}

// NewEngine makes an engine that has planned nothing yet.
func NewEngine(classes view.Classes) *Engine { return &Engine{classes: classes} }

// Plan decides for every Service of type LoadBalancer of the engine's classes, and for every
// reservation. The result has an entry for each of them, except those that are being deleted,
// and those of a namespace that is not known yet where pools choose namespaces by labels:
// these are left as they are. It holds until the next call, and callers must not change it.
//
// Each Service or reservation holds the addresses in its status, or those in assumed, which
// has the decisions that the snapshot does not show yet. The rules, in this order:
//
//   - An address belongs to one Service, or to several that share it: they have one
//     share key, and no port in common. Where two hold it that cannot share it, the
//     older one keeps it and the other gets a new one.
//   - An address belongs to one reservation at most, and then to Services of its
//     namespace only, if to any. Where a Service of another one holds it as well, the
//     Service keeps it: there is traffic to it.
//   - What is held stays, whichever program wrote it, and whatever becomes of the pools,
//     until the Service no longer wants the family or asks for something else, or the pool
//     has dropped the address and says Renumber, unless the Service asks for it. What no
//     Service can have, such as a loopback address, is not taken over from a status.
//   - An address that is left is free once no status shows it any more. What is
//     assumed is not left before a status shows it.
//   - What the cluster itself uses is never given, nor what another Service lists in spec.externalIPs, unless it is
//     asked for. In the status of a Service, it is given back if no pool has or had it.
//   - An address that is cooling down goes to the Service or reservation that left it, and to
//     reservations of that namespace that name it.
//   - Those that name addresses choose before all others, as after a restore without statuses. Beside that,
//     reservations choose before Services, the older before the younger. A Service that
//     asks for a reservation gets what the status of that shows.
//
// The problems name the objects that lack what they ask for, and pools that claim addresses
// of an older pool.
func (e *Engine) Plan(c *view.Cluster, assumed Assignments) Outcome {
	var o Outcome
	if whole := e.follow(c); !whole {
		o.Looked = make(map[view.Ref]struct{}, len(c.Touched)+len(e.active))
		for ref := range c.Touched {
			o.Looked[ref] = struct{}{}
		}
	}
	claims := e.contest(assumed.Services)
	for ref, s := range e.active {
		if o.Looked != nil {
			o.Looked[ref] = struct{}{}
		}
		delete(e.assigned, ref)
		if _, unseen := assumed.Services[ref]; !unseen && e.maySettle(s, claims) {
			e.settle(s)
		}
	}
	e.free.rewind(e.settled)
	sc := &scene{c, e.active, e.settled, e.free}
	o.Assigned = Assignments{Services: e.assigned, Reservations: make(map[view.Ref]Assignment, len(c.Reservations))}
	o.Problems = sc.plan(assumed, e.classes, o.Assigned)
	for ref := range e.active {
		if a, ours := e.assigned[ref]; ours && len(a.Addresses) == 0 {
			o.Waiting++
		}
	}
	o.Users, o.Usage, o.Extent, o.Occupied = sc.users(o.Assigned), sc.count(o.Assigned), sc.extent(o.Assigned), e.free.used
	return o
}

// follow takes in what has changed, and reports whether that may be anything.
func (e *Engine) follow(c *view.Cluster) (whole bool) {
	same := c.Revision != 0 && c.Revision == e.seen
	known := same || e.seen != 0 && c.Since == e.seen
	e.seen = c.Revision
	ranges, others := c.UsedRanges(), othersOf(c)
	moved := !slices.Equal(ranges, e.ranges)
	if !known || !maps.Equal(c.Pools, e.pools) || moved && !slices.Equal(e.free.overlapping(slices.Clone(ranges)), e.free.used.Ranges) {
		e.pools, e.others, e.ranges = c.Pools, others, ranges
		e.free = newFreeList(c)
		e.active, e.settled, e.assigned = maps.Clone(c.Services), newSettled(), make(map[view.Ref]Assignment, len(c.Services))
		return true
	}
	if same {
		return false
	}
	moved = moved || c.Others && !others.equal(e.others)
	e.others, e.ranges = others, ranges
	var changed []netip.Addr
	for ref := range c.Touched {
		before := e.activate(ref)
		now := c.Services[ref]
		if len(c.ServiceRanges) == 0 || straying(c, before) || straying(c, now) {
			more, known := e.free.useAnew(c, ref)
			changed, moved, e.free.beyond = append(changed, more...), moved || !known, nil
		}
		if now != nil {
			e.active[ref] = now
		} else {
			delete(e.active, ref)
			delete(e.assigned, ref)
		}
	}
	if moved {
		e.free.use(c)
		changed = slices.AppendSeq(changed, maps.Keys(e.free.used.Addresses))
	}
	for _, a := range changed {
		if s := e.settled.on[a]; s != nil {
			e.activate(s.Ref)
		}
	}
	return false
}

// straying reports whether a Service, nil for none, has a ClusterIP that is in no range of these, or lists external
// addresses.
func straying(c *view.Cluster, s *view.Service) bool {
	return s != nil && (len(s.ExternalIPs) > 0 ||
		slices.ContainsFunc(s.ClusterIPs, func(a netip.Addr) bool { return !c.ServiceRange(a).IsValid() }))
}

// others are what uses addresses beside the Services of the snapshot.
type others struct {
	nodes    map[string]*view.Node
	networks []netip.Prefix
	servers  []netip.Addr
	peers    map[string][2]netip.Addr
	listed   map[view.Ref][]netip.Addr
}

func othersOf(c *view.Cluster) others {
	peers := make(map[string][2]netip.Addr, len(c.BGPPeers))
	for name, p := range c.BGPPeers {
		peers[name] = [2]netip.Addr{p.PeerAddress, p.SourceAddress}
	}
	return others{c.Nodes, c.Networks, c.APIServers, peers, c.ExternalIPs}
}

func (o others) equal(p others) bool {
	return maps.Equal(o.nodes, p.nodes) && slices.Equal(o.networks, p.networks) && slices.Equal(o.servers, p.servers) &&
		maps.Equal(o.peers, p.peers) && maps.EqualFunc(o.listed, p.listed, slices.Equal[[]netip.Addr])
}

// activate makes a Service active, and returns it as it was in the last snapshot; nil for a
// new one.
func (e *Engine) activate(ref view.Ref) *view.Service {
	s := e.settled.services[ref]
	if s == nil {
		return e.active[ref]
	}
	e.settled.remove(s, e.free)
	e.active[ref] = s
	return s
}

// settle ends the planning for a Service.
func (e *Engine) settle(s *view.Service) {
	delete(e.active, s.Ref)
	e.settled.add(s, e.free)
	if decides(s, e.classes) {
		e.assigned[s.Ref] = Assignment{Addresses: s.Ingress}
	}
}

// contest counts the claims on the addresses of active Services, and activates the settled
// Services on them. Reservations take nothing from a Service.
func (e *Engine) contest(assumed map[view.Ref]Assignment) map[netip.Addr]int {
	claims := make(map[netip.Addr]int, len(e.active))
	const decided = 2 // no Service on it settles
	claim := func(addresses []netip.Addr, weight int) (activated []*view.Service) {
		for _, a := range addresses {
			claims[a] += weight
			if s := e.settled.on[a]; s != nil {
				activated = append(activated, e.activate(s.Ref))
			}
		}
		return activated
	}
	for ref, a := range assumed {
		e.activate(ref)
		claim(a.Addresses, decided)
	}
	for queue := slices.Collect(maps.Values(e.active)); len(queue) > 0; queue = queue[1:] {
		queue = append(queue, claim(queue[0].Ingress, 1)...)
	}
	return claims
}

// maySettle reports whether an active Service may settle.
func (e *Engine) maySettle(s *view.Service, claims map[netip.Addr]int) bool {
	alone := !slices.ContainsFunc(s.Ingress, func(a netip.Addr) bool { return claims[a] > 1 })
	ours := decides(s, e.classes)
	return alone && (!ours || len(s.Ingress) > 0) && e.free.settles(s, ours)
}
