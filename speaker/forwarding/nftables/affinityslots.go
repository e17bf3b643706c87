package nftables

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
)

// An affinity slot is a number for an endpoint of a port with session affinity. No other has it,
// and none that was at the same address before: one that comes back does not find the
// clients that it had. Its upper part is the id of the port, the rest is a slot.
const (
	slotMask = 1<<14 - 1
	idStep   = slotMask + 1
	idCount  = 1<<32/idStep - 1 // 0 is none
)

// slotAssignment gives the endpoints of one port their affinity slots. It is never changed.
type slotAssignment struct {
	id    uint32
	slots map[netip.AddrPort]uint32
	last  uint32 // slot that was given
}

func (s *slotAssignment) slot(e netip.AddrPort) uint32 { return s.id | s.slots[e] }

// next is the assignment of the port with these endpoints. Those that have a slot keep it.
func (s *slotAssignment) next(endpoints []netip.AddrPort) *slotAssignment {
	n := &slotAssignment{id: s.id, last: s.last, slots: make(map[netip.AddrPort]uint32, len(endpoints))}
	taken := map[uint32]bool{0: true}
	for _, e := range endpoints {
		if slot, ok := s.slots[e]; ok {
			n.slots[e], taken[slot] = slot, true
		}
	}
	for _, e := range endpoints {
		if _, has := n.slots[e]; has {
			continue
		}
		for n.last = (n.last + 1) & slotMask; taken[n.last]; {
			n.last = (n.last + 1) & slotMask
		}
		n.slots[e], taken[n.last] = n.last, true
	}
	return n
}

type ids struct {
	of     map[desired.PortKey]uint32
	taken  map[uint32]bool
	last   uint32 // that was given: one that comes free is given again last, when its clients have timed out
	recall recall
}

// recall is what the kernel had when this process began: ids by what leads to them,
// and which endpoint has which slot.
type recall struct {
	ids   map[item]uint32
	slots map[uint32]map[netip.AddrPort]uint32 // by id
}

func newIDs() *ids {
	return &ids{of: map[desired.PortKey]uint32{}, taken: map[uint32]bool{}}
}

// remember takes in what the kernel had. None of its ids is given to a port that had another, as long as there are more.
func (i *ids) remember(r recall) {
	i.recall = r
	for _, id := range r.ids {
		i.last = max(i.last, id)
	}
}

var errNoID = errors.New("too many ports have session affinity")

// begin is the assignment of a port that had none: as an earlier process left it, if one
// of these destinations was its own, else empty.
func (i *ids) begin(key desired.PortKey, destinations []item) (*slotAssignment, error) {
	if id, has := i.of[key]; has {
		return i.recalled(id), nil
	}
	for _, d := range destinations {
		if id, known := i.recall.ids[d]; known && !i.taken[id] {
			i.take(key, id)
			return i.recalled(id), nil
		}
	}
	if len(i.taken) == idCount {
		return nil, errNoID
	}
	for i.last += idStep; i.last == 0 || i.taken[i.last]; { // 0 is behind the highest
		i.last += idStep
	}
	i.take(key, i.last)
	return &slotAssignment{id: i.last}, nil
}

func (i *ids) take(key desired.PortKey, id uint32) { i.of[key], i.taken[id] = id, true }

// release gives back the id of a port that is not in the kernel.
func (i *ids) release(key desired.PortKey) {
	if id, has := i.of[key]; has {
		delete(i.taken, id)
		delete(i.of, key)
	}
}

func (i *ids) recalled(id uint32) *slotAssignment {
	s := &slotAssignment{id: id, slots: i.recall.slots[id]}
	for _, slot := range s.slots {
		s.last = max(s.last, slot)
	}
	return s
}

// recall reads the assignments out of what the kernel has.
func (c *dump) recall() recall {
	r := recall{ids: map[item]uint32{}, slots: map[uint32]map[netip.AddrPort]uint32{}}
	for i, d := range c.elements {
		switch i.set {
		case affinityPorts, nodeAffinityPorts:
			if len(d.was) == 4 {
				r.ids[i] = binary.NativeEndian.Uint32([]byte(d.was)) &^ slotMask
			}
		case affinityEndpoints, localAffinityEndpoints:
			size := len(d.was) - 4
			if a, ok := netip.AddrFromSlice([]byte(d.was[:max(size, 0)])); ok && len(i.key) == 8 {
				affinitySlot := binary.NativeEndian.Uint32([]byte(i.key[4:]))
				id, at := affinitySlot&^slotMask, netip.AddrPortFrom(a, binary.BigEndian.Uint16([]byte(d.was[size:])))
				if r.slots[id] == nil {
					r.slots[id] = map[netip.AddrPort]uint32{}
				}
				r.slots[id][at] = affinitySlot & slotMask
			}
		default:
		}
	}
	return r
}

// affinityOverflow knows whether the map of session affinity has had room for all clients of late. The
// kernel does not say how many elements it holds short of listing up to a million of them,
// but a rule counts the packets of clients that it has no room for.
type affinityOverflow struct {
	looked  time.Time // zero: never
	counted uint64    // then
	full    bool
}

// recount is how often the counters are read: a handful of rules for each size that a group
// of endpoints has.
const recount = time.Minute

// look reads the counters, unless that was done a short time ago or no port has affinity. What
// cannot be asked shows elsewhere.
func (c *affinityOverflow) look(l *model) {
	if len(l.assignments) == 0 {
		*c = affinityOverflow{}
		return
	}
	if time.Since(c.looked) < recount {
		return
	}
	counted, err := l.Packets()
	if err != nil {
		return
	}
	// They begin anew when the rules are written anew, as by this process when it begins.
	c.full = !c.looked.IsZero() && counted != c.counted && counted > 0
	c.looked, c.counted = time.Now(), counted
}
