package nftables

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"fairlead.dev/fairlead/speaker/desired"
)

// A seat is a number for an endpoint of a port with session affinity. No other has it,
// and none that was at the same address before: who comes back does not find the
// clients that it had. Its upper part is the id of the port, the rest is a chair.
const (
	chairMask = 1<<14 - 1
	idStep    = chairMask + 1
	idCount   = 1<<32/idStep - 1 // 0 is none
)

// seating gives the endpoints of one port their seats. It is never changed.
type seating struct {
	id     uint32
	chairs map[netip.AddrPort]uint32
	last   uint32 // chair that was given
}

func (s *seating) seat(e netip.AddrPort) uint32 { return s.id | s.chairs[e] }

// next is the seating of the port with these endpoints. Those that have a chair keep it.
func (s *seating) next(endpoints []netip.AddrPort) *seating {
	n := &seating{id: s.id, last: s.last, chairs: make(map[netip.AddrPort]uint32, len(endpoints))}
	taken := map[uint32]bool{0: true}
	for _, e := range endpoints {
		if chair, ok := s.chairs[e]; ok {
			n.chairs[e], taken[chair] = chair, true
		}
	}
	for _, e := range endpoints {
		if _, has := n.chairs[e]; has {
			continue
		}
		for n.last = (n.last + 1) & chairMask; taken[n.last]; {
			n.last = (n.last + 1) & chairMask
		}
		n.chairs[e], taken[n.last] = n.last, true
	}
	return n
}

// ids are those that ports have.
type ids struct {
	of     map[desired.PortKey]uint32
	taken  map[uint32]bool
	last   uint32 // that was given: one that comes free is given again last, when its clients have timed out
	recall recall
}

// recall is what the kernel had when this process began: ids by what leads to them,
// and who sits where.
type recall struct {
	ids    map[item]uint32
	chairs map[uint32]map[netip.AddrPort]uint32 // by id
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

// begin is the seating of a port that had none: as an earlier process left it, if one
// of these destinations was its own, else empty.
func (i *ids) begin(key desired.PortKey, destinations []item) (*seating, error) {
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
	return &seating{id: i.last}, nil
}

func (i *ids) take(key desired.PortKey, id uint32) { i.of[key], i.taken[id] = id, true }

// release gives back the id of a port that is not in the kernel.
func (i *ids) release(key desired.PortKey) {
	if id, has := i.of[key]; has {
		delete(i.taken, id)
		delete(i.of, key)
	}
}

func (i *ids) recalled(id uint32) *seating {
	s := &seating{id: id, chairs: i.recall.chairs[id]}
	for _, chair := range s.chairs {
		s.last = max(s.last, chair)
	}
	return s
}

// recall reads the seatings out of what the kernel has.
func (c *content) recall() recall {
	r := recall{ids: map[item]uint32{}, chairs: map[uint32]map[netip.AddrPort]uint32{}}
	for i, d := range c.elements {
		switch i.set {
		case seatings, nodeSeatings:
			if len(d.was) == 4 {
				r.ids[i] = binary.NativeEndian.Uint32([]byte(d.was)) &^ chairMask
			}
		case seats, localSeats:
			size := len(d.was) - 4
			if a, ok := netip.AddrFromSlice([]byte(d.was[:max(size, 0)])); ok && len(i.key) == 4 {
				seat := binary.NativeEndian.Uint32([]byte(i.key))
				id, at := seat&^chairMask, netip.AddrPortFrom(a, binary.BigEndian.Uint16([]byte(d.was[size:])))
				if r.chairs[id] == nil {
					r.chairs[id] = map[netip.AddrPort]uint32{}
				}
				r.chairs[id][at] = seat & chairMask
			}
		default:
		}
	}
	return r
}
