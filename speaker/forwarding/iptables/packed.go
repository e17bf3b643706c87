package iptables

import (
	"net/netip"

	"fairlead.dev/fairlead/speaker/forwarding/ipset"
)

// packed is an element of a set of ours, in a third of the room: a node has one for each endpoint.
type packed struct {
	address  [16]byte
	port     uint16
	protocol uint8
	bits     uint8
	has      parts
}

// parts are which fields of an element count.
type parts uint8

const (
	hasPrefix parts = 1 << iota
	hasIPv4
	hasSecond // which is the first one again
)

// pack packs an element. It returns false for one whose second address is another one than its first, which none of ours is.
func pack(e ipset.Element) (packed, bool) {
	p := packed{port: e.Port, protocol: e.Protocol}
	a := e.Prefix.Addr()
	if e.Prefix.IsValid() {
		p.address, p.bits, p.has = a.As16(), uint8(e.Prefix.Bits()), hasPrefix
	}
	if a.Is4() {
		p.has |= hasIPv4
	}
	if e.Second.IsValid() {
		p.has |= hasSecond
	}
	return p, !e.Second.IsValid() || e.Second == a
}

func (p packed) element() ipset.Element {
	e := ipset.Element{Port: p.port, Protocol: p.protocol}
	if p.has&hasPrefix == 0 {
		return e
	}
	a := netip.AddrFrom16(p.address)
	if p.has&hasIPv4 != 0 {
		a = a.Unmap()
	}
	e.Prefix = netip.PrefixFrom(a, int(p.bits))
	if p.has&hasSecond != 0 {
		e.Second = a
	}
	return e
}

func unpacked(some []packed) []ipset.Element {
	all := make([]ipset.Element, len(some))
	for i, p := range some {
		all[i] = p.element()
	}
	return all
}
