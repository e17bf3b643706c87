package election

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
)

// Spread gives each address a node so that no node has many more than others.
//
// An address wants the node with the least weight for it, and a node that is full keeps
// those addresses for which its weight is least; the others want their next one (a stable
// matching by deferred acceptance, Gale and Shapley 1962). As both sides go by the same
// weights, which are all different, there is exactly one such matching. So the result depends
// on the present addresses and nodes alone, all nodes find the same, and it can be found
// again from the last one at the cost of what moves: an address that comes or goes moves
// another one at times and several hardly ever. A node that comes or goes makes another group, which
// begins with what it has in common with the one that most of its addresses were in.
//
// Only addresses of one family that may go to the same nodes share these: a Group. Groups
// know nothing of each other. The zero Spread is empty; one goroutine at a time may use it.
type Spread struct {
	groups map[string]*Group
	of     map[netip.Addr]*member
	// changed are the groups in which addresses came or went since Settle.
	changed map[*Group]struct{}
}

// Group are the nodes that some addresses may go to.
type Group struct {
	nodes []*bin
	// count of addresses, those included that are only to come or to go when all settles.
	count     int
	come      map[*member]struct{}
	displaced map[*member]struct{} // those that would rather be elsewhere
	isOld     bool                 // it was settled before
}

type bin struct {
	of       *Group
	node     string
	phase    int
	capacity int
	held     []*member // by weight, the least first
	// vacant: it was full when all was settled, and may not be any more.
	vacant bool
}

type member struct {
	address netip.Addr
	group   *Group
	at      *bin   // nil: nowhere yet
	weight  weight // of at
	first   *bin   // where it would be if it were alone
	of      weigher
	isNew   bool   // it came since Settle
	from    *Group // in which it was until then; nil: in none
}

// Among returns the group of the addresses of a family that may go to these nodes, which are
// sorted; nil for no nodes.
func (s *Spread) Among(family addr.Family, nodes []string) *Group {
	if len(nodes) == 0 {
		return nil
	}
	if s.groups == nil {
		s.groups, s.of, s.changed = map[string]*Group{}, map[netip.Addr]*member{}, map[*Group]struct{}{}
	}
	key := family.String() + " " + strings.Join(nodes, " ")
	if g := s.groups[key]; g != nil {
		return g
	}
	g := &Group{come: map[*member]struct{}{}, displaced: map[*member]struct{}{}}
	for _, node := range nodes {
		g.nodes = append(g.nodes, &bin{of: g, node: node, phase: phaseOf(node)})
	}
	s.groups[key] = g
	return g
}

// Put puts an address into a group that Among returned since the last Settle, in place of
// the one that it is in; nil takes it out of all. It takes effect with Settle.
func (s *Spread) Put(address netip.Addr, into *Group) {
	m := s.of[address]
	if m != nil && m.group == into || m == nil && into == nil {
		return
	}
	if m != nil {
		delete(s.of, address)
		m.group.count--
		s.changed[m.group] = struct{}{}
		if _, came := m.group.come[m]; came {
			delete(m.group.come, m)
		} else {
			m.at.leave(m)
			delete(m.group.displaced, m)
		}
	}
	if into != nil {
		came := &member{address: address, group: into, isNew: true}
		switch {
		case m == nil:
			came.of = newWeigher(address)
		case m.origin() == into:
			came.of = m.of
		default:
			came.of, came.from, came.at, came.weight, came.first = m.of, m.origin(), m.at, m.weight, m.first
		}
		m = came
		s.of[address] = m
		into.count++
		into.come[m] = struct{}{}
		s.changed[into] = struct{}{}
	}
}

// origin is the group in which an address was when all was settled last.
func (m *member) origin() *Group {
	if m.isNew {
		return m.from
	}
	return m.group
}

// Keep takes out all addresses but those that keep wants.
func (s *Spread) Keep(keep func(netip.Addr) bool) {
	for address := range s.of {
		if !keep(address) {
			s.Put(address, nil)
		}
	}
}

// Settle gives every address its node, and returns the addresses that moved from one node to another.
func (s *Spread) Settle() map[netip.Addr]struct{} {
	moved := map[netip.Addr]struct{}{}
	for g := range s.changed { // before any that it may inherit from is settled
		if !g.isOld {
			g.inherit()
		}
	}
	for g := range s.changed {
		g.settle(moved)
	}
	for key, g := range s.groups {
		if g.count == 0 {
			delete(s.groups, key)
		}
	}
	clear(s.changed)
	return moved
}

// Node returns the node of an address; false if it is in no group.
func (s *Spread) Node(address netip.Addr) (string, bool) {
	m := s.of[address]
	if m == nil || m.isNew {
		return "", false
	}
	return m.at.node, true
}

// settle makes the matching stable again, in an order that looks at an address
// only when it moves: first the free places go to settled addresses that prefer them, and then new
// addresses are placed. The first moves addresses only to nodes
// that they want more, the second only to those that they want less, so that each ends.
func (g *Group) settle(moved map[netip.Addr]struct{}) {
	before := map[*member]*bin{}
	note := func(m *member) {
		if _, known := before[m]; !known {
			before[m] = m.at
		}
	}
	var shrunk []*bin
	for _, b := range g.nodes {
		switch now := capacity(b.phase, g.count, len(g.nodes)); {
		case now > b.capacity:
			b.vacant = b.vacant || len(b.held) == b.capacity
			b.capacity = now
		case now < b.capacity:
			shrunk = append(shrunk, b)
		}
	}
	g.fillVacant(note)
	unmatched := make([]*member, 0, len(g.come))
	for m := range g.come {
		if m.at == nil || m.at.of != g {
			m.at = nil
			unmatched = append(unmatched, m)
		}
	}
	for _, b := range shrunk {
		b.capacity = capacity(b.phase, g.count, len(g.nodes))
		for len(b.held) > b.capacity {
			unmatched = append(unmatched, b.pop())
		}
	}
	g.match(unmatched, note)
	for m, b := range before {
		if !m.isNew && b != m.at {
			moved[m.address] = struct{}{}
		}
	}
	for m := range g.come {
		m.isNew, m.from = false, nil
	}
	clear(g.come)
	g.isOld = true
}

// fillVacant fills the vacant nodes with those that would rather be there, the least weight first.
func (g *Group) fillVacant(note func(*member)) {
	var vacant []*bin
	for _, b := range g.nodes {
		if b.vacant {
			vacant = append(vacant, b)
		}
	}
	for len(vacant) > 0 {
		b := vacant[len(vacant)-1]
		m, w := g.wanting(b)
		if m == nil {
			b.vacant = false
			vacant = vacant[:len(vacant)-1]
			continue
		}
		note(m)
		left := m.at
		if left.leave(m); left.vacant && !slices.Contains(vacant, left) {
			vacant = append(vacant, left)
		}
		g.settleAt(m, b, w)
	}
}

// wanting is the address that the node gets next, nil if there is none or no place.
func (g *Group) wanting(b *bin) (next *member, least weight) {
	if len(b.held) >= b.capacity {
		return nil, least
	}
	for m := range g.displaced {
		w := m.of.weigh(b.node)
		if w.compare(&m.weight) < 0 && (next == nil || w.compare(&least) < 0) {
			next, least = m, w
		}
	}
	return next, least
}

// match gives each of the unmatched the best node that takes it. An address that has to make room for it is
// unmatched then.
func (g *Group) match(unmatched []*member, note func(*member)) {
	for len(unmatched) > 0 {
		m := unmatched[len(unmatched)-1]
		unmatched = unmatched[:len(unmatched)-1]
		note(m)
		var first, to *bin
		var least, weight weight
		for _, b := range g.nodes {
			w := m.of.weigh(b.node)
			if first == nil || w.compare(&least) < 0 {
				first, least = b, w
			}
			if (to == nil || w.compare(&weight) < 0) && b.takes(&w) {
				to, weight = b, w
			}
		}
		m.first = first
		g.settleAt(m, to, weight)
		if len(to.held) > to.capacity {
			unmatched = append(unmatched, to.pop())
		}
	}
}

// settleAt puts an address on a node, of that weight for it.
func (g *Group) settleAt(m *member, at *bin, w weight) {
	m.at, m.weight = at, w
	i, _ := at.find(&w)
	at.held = slices.Insert(at.held, i, m)
	if at == m.first {
		delete(g.displaced, m)
	} else {
		g.displaced[m] = struct{}{}
	}
}

// find is where an address of that weight is, or would be.
func (b *bin) find(w *weight) (int, bool) {
	return slices.BinarySearchFunc(b.held, w, func(m *member, w *weight) int { return m.weight.compare(w) })
}

func (b *bin) takes(w *weight) bool {
	return len(b.held) < b.capacity || w.compare(&b.held[len(b.held)-1].weight) < 0
}

func (b *bin) leave(m *member) {
	b.vacant = b.vacant || len(b.held) == b.capacity
	i, _ := b.find(&m.weight)
	b.held = slices.Delete(b.held, i, i+1)
}

// pop takes away the address that the node would rather do without.
func (b *bin) pop() *member {
	last := len(b.held) - 1
	m := b.held[last]
	b.held = slices.Delete(b.held, last, last+1)
	return m
}

// Capacities are on a ladder of steps, each half as high again as the one before, so that a
// node's capacity changes rarely: when there are half as many addresses more, and not with
// each. The first step is 8 to 12 addresses, for each node another one by its name, so that
// the nodes do not all go up at once, which would move many addresses at one moment. Fewer
// are spread by the hash alone: to have them more even is not worth one that moves.
const (
	ladderUnit   = 1 << 10 // fractions of an address, since the steps are none of whole ones
	ladderBottom = 8 * ladderUnit
	ladderPhases = ladderBottom / 2
)

// capacity is how many of so many addresses a node takes, if it is one of so many nodes: the
// lowest of its steps that is at least five quarters of the mean. Together they have room
// for all. It reckons in whole numbers, which are the same on every kind of machine.
func capacity(phase, addresses, nodes int) int {
	step := ladderBottom + phase
	for (step/ladderUnit)*4*nodes < 5*addresses {
		step += step / 2
	}
	return step / ladderUnit
}

// phaseOf is where between two steps of the ladder those of a node are.
func phaseOf(node string) int {
	digest := sha256.Sum256([]byte("capacity of " + node))
	return int(binary.BigEndian.Uint32(digest[:]) % ladderPhases)
}
