package hello

import (
	"bytes"
	"net/netip"
	"slices"
)

// ID stands for a name where many have to fit: 4 bytes of its SHA-256.
type ID = nodeID

// IDOf is the ID of the name of a node or an interface.
func IDOf(name string) ID { return idOf(name) }

// Interface is one on which a node may answer for addresses.
type Interface struct {
	ID ID // of its name
	// Subnets are those of its addresses, of both families, but for link-local ones and
	// those of one address.
	Subnets []netip.Prefix
	// Heard are some nodes with which frames were exchanged over it, both ways, a moment ago.
	Heard []ID
	// CutOff: with none, though others hear each other there.
	CutOff bool
}

// Bounds of what is told of interfaces. Nodes have one or two of them, in a subnet of each family.
const (
	maxInterfaces  = 4
	maxSubnets     = 6
	interfaceBytes = 192
	// MaxHeard is how many nodes are told of that are heard over an interface. With two, each
	// other node learns of one that is not itself.
	MaxHeard            = 2
	additionInterface   = 8
	additionNoInterface = 9 // there are more interfaces or subnets than were told
	beyondIPv4          = 33
	heardCutOff         = 0x80
)

// Equal compares two by value.
func (i Interface) Equal(o Interface) bool {
	return i.ID == o.ID && i.CutOff == o.CutOff && slices.Equal(i.Subnets, o.Subnets) && slices.Equal(i.Heard, o.Heard)
}

// told is what fits of the interfaces, in order, and whether that is not all. It takes half of
// the room that is left, at most: addresses that the node is unable to serve need some, too.
func told(all []Interface, room int) (fit []Interface, part bool) {
	for _, i := range all {
		t := Interface{ID: i.ID, CutOff: i.CutOff, Heard: slices.Clone(i.Heard[:min(len(i.Heard), MaxHeard)])}
		for _, p := range i.Subnets {
			if p = p.Masked(); p.IsValid() && !p.IsSingleIP() && !p.Addr().IsLinkLocalUnicast() && !p.Addr().Is4In6() {
				t.Subnets = append(t.Subnets, p)
			}
		}
		slices.SortFunc(t.Subnets, netip.Prefix.Compare)
		t.Subnets = slices.Compact(t.Subnets)
		if len(t.Subnets) > maxSubnets {
			t.Subnets, part = t.Subnets[:maxSubnets], true
		}
		fit = append(fit, t)
	}
	slices.SortFunc(fit, func(a, b Interface) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	room = min(interfaceBytes, room/2) - additionHead // of the addition which says that there are more
	for i, t := range fit {
		room -= additionHead + t.size()
		if i == maxInterfaces || room < 0 {
			return fit[:i], true
		}
	}
	return fit, part
}

// size of what is told of it.
func (i Interface) size() int {
	size := idSize + 1 + len(i.Heard)*idSize
	for _, p := range i.Subnets {
		size += 1 + (p.Bits()+7)/8
	}
	return size
}

// appendInterfaces adds an addition for each interface: its ID, the number of nodes heard over it, 128
// more if it is cut off, the ID of each, and its subnets: a byte that is the length of an IPv4 prefix, or 33 more than that
// of an IPv6 one, and as many bytes of the prefix as have a bit of it.
func (s said) appendInterfaces(b []byte) []byte {
	for _, i := range s.interfaces {
		at := len(b) + 1
		b = append(b, additionInterface, 0)
		b = append(b, i.ID[:]...)
		count := byte(len(i.Heard))
		if i.CutOff {
			count |= heardCutOff
		}
		b = append(b, count)
		for _, id := range i.Heard {
			b = append(b, id[:]...)
		}
		for _, p := range i.Subnets {
			bits := p.Bits()
			if p.Addr().Is6() {
				bits += beyondIPv4
			}
			b = append(b, byte(bits))
			b = append(b, p.Addr().AsSlice()[:(p.Bits()+7)/8]...)
		}
		b[at] = byte(len(b) - at - 1)
	}
	if s.part {
		b = append(b, additionNoInterface, 0)
	}
	return b
}

// withInterface reads one such addition. What is not to be understood is left out, and with it
// the belief that all was told.
func (s said) withInterface(b []byte) said {
	i, ok := decodeInterface(b)
	if !ok || len(s.interfaces) >= maxInterfaces {
		s.part = true
		return s
	}
	s.interfaces = append(slices.Clip(s.interfaces), i)
	return s
}

func decodeInterface(b []byte) (i Interface, ok bool) {
	if len(b) < idSize+1 {
		return i, false
	}
	i.ID = ID(b)
	heard := int(b[idSize] &^ heardCutOff)
	i.CutOff = b[idSize]&heardCutOff != 0
	if b = b[idSize+1:]; heard > MaxHeard || len(b) < heard*idSize {
		return i, false
	}
	for id := range slices.Chunk(b[:heard*idSize], idSize) {
		i.Heard = append(i.Heard, ID(id))
	}
	for b = b[heard*idSize:]; len(b) > 0; {
		bits, address := int(b[0]), make([]byte, 4)
		if bits >= beyondIPv4 {
			bits, address = bits-beyondIPv4, make([]byte, 16)
		}
		size := (bits + 7) / 8
		if b = b[1:]; size > len(address) || size > len(b) || len(i.Subnets) == maxSubnets {
			return i, false
		}
		copy(address, b[:size])
		a, _ := netip.AddrFromSlice(address)
		i.Subnets = append(i.Subnets, netip.PrefixFrom(a, bits).Masked())
		b = b[size:]
	}
	return i, true
}

// Has tells whether a node says that one of its interfaces has a subnet with the address.
func (m Member) Has(a netip.Addr) bool {
	return slices.ContainsFunc(m.Interfaces, func(i Interface) bool {
		return slices.ContainsFunc(i.Subnets, func(p netip.Prefix) bool { return p.Contains(a) })
	})
}

// Lacks tells whether a node says what its interfaces have, and it is none with the address.
func (m Member) Lacks(a netip.Addr) bool { return len(m.Interfaces) > 0 && !m.Part && !m.Has(a) }

// Seal makes datagrams of a body that is not a hello, which the nodes know for ours: one for
// each key that some of them may have. Without a key there is none.
func (m *Mesh) Seal(body []byte) [][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.sealedBody(body)
}

// Unseal gives the body of a datagram that a node has sealed; the reason is empty if one has.
func (m *Mesh) Unseal(datagram []byte) (body []byte, reason Reason) {
	if len(datagram) < macSize {
		return nil, ReasonMalformed
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.keys.authentic(datagram)
}
