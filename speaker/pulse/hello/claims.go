package hello

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Stance is what a node says of an address that another one answers for, too.
type Stance uint8

// The stances. Unknown ones, of later releases, are left out when a hello is read.
const (
	Answers Stance = iota + 1 // it answers
	Leaves                    // it would, and leaves it to another one that has a higher epoch
	Stopped                   // it answered until a moment ago, and does not any more
)

// Claim is what a node says of an address on which nodes do not agree.
type Claim struct {
	Address netip.Addr
	Stance  Stance
	// Epoch grows with each time that the address is taken; see Mesh.Advance.
	Epoch uint64
}

const (
	additionClaims = 4
	epochSize      = 8
	claimSize      = 1 + 16 + epochSize
	// MaxClaims is how many claims a hello has at most. Who has more to say takes turns.
	MaxClaims = 8
)

// fitting are the claims that are told.
func fitting(claims []Claim) []Claim {
	claims = slices.DeleteFunc(slices.Clone(claims), func(c Claim) bool { return !c.Address.IsValid() })
	return claims[:min(len(claims), MaxClaims)]
}

// claiming is the addition that has the epoch of the node, and as many of its claims as
// there is room for; nothing before any node ever took an address.
func (h hello) claiming(room int) []byte {
	room -= additionHead + epochSize
	if h.epoch == 0 || room < 0 {
		return nil
	}
	claims := h.claims[:min(len(h.claims), room/claimSize)]
	b := []byte{additionClaims, byte(epochSize + claimSize*len(claims))}
	b = binary.BigEndian.AppendUint64(b, h.epoch)
	for _, c := range claims {
		a := c.Address.As16()
		b = append(b, byte(c.Stance))
		b = append(b, a[:]...)
		b = binary.BigEndian.AppendUint64(b, c.Epoch)
	}
	return b
}

// claimed reads that addition.
func (h hello) claimed(addition []byte) hello {
	if len(addition) < epochSize || (len(addition)-epochSize)%claimSize != 0 {
		return h
	}
	h.epoch, h.claims = binary.BigEndian.Uint64(addition), nil
	for c := range slices.Chunk(addition[epochSize:], claimSize) {
		claim := Claim{
			Address: netip.AddrFrom16([16]byte(c[1:17])).Unmap(), Stance: Stance(c[0]),
			Epoch: binary.BigEndian.Uint64(c[17:]),
		}
		if claim.Stance >= Answers && claim.Stance <= Stopped {
			h.claims = append(h.claims, claim)
		}
	}
	h.claims = fitting(h.claims)
	return h
}

// advance is the epoch of what is taken now: higher than all that was heard of.
func (m *machine) advance() uint64 {
	m.epoch++
	return m.epoch
}

// Advance begins an epoch, which is higher than any that this node has heard of: all nodes
// tell theirs in every hello (a Lamport clock). So who takes an address over from a node that
// it has heard has the higher epoch.
func (m *Mesh) Advance() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.advance()
}
