package hello

import (
	"bytes"
	"net/netip"
	"slices"
)

// Interface is one on which a node may answer for addresses.
type Interface struct {
	ID ID `cbor:"1,keyasint"` // of its name
	// Subnets are those of its addresses, of both families, but for link-local ones and
	// those of one address.
	Subnets []netip.Prefix `cbor:"2,keyasint,omitempty"`
	// Heard are some nodes with which frames were exchanged over it, both ways, a moment ago.
	Heard []ID `cbor:"3,keyasint,omitempty"`
	// CutOff: with none, though others hear each other there.
	CutOff bool `cbor:"4,keyasint,omitempty"`
}

// Bounds of what is told of interfaces. Nodes have one or two of them, in a subnet of each family.
const (
	maxInterfaces  = 4
	maxSubnets     = 6
	interfaceBytes = 256
	// MaxHeard is how many nodes are told of that are heard over an interface. With two, each
	// other node learns of one that is not itself.
	MaxHeard = 2
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
	room = min(interfaceBytes, room/2)
	for i, t := range fit {
		room -= len(encoded(t))
		if i == maxInterfaces || room < 0 {
			return fit[:i], true
		}
	}
	return fit, part
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
