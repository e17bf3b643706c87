package desired

import (
	"net/netip"

	"fairlead.dev/fairlead/internal/addr"
)

// handAll decides anew who had which address before this node.
func (e *Engine) handAll() {
	if e.node.Forwarding.Former == nil {
		e.node.Forwarding.Former = map[netip.Addr]netip.Addr{}
		e.node.Forwarding.Handing++
	}
	for address := range e.node.Forwarding.Former {
		e.hand(address)
	}
	for address := range e.node.Layer2 {
		e.hand(address)
	}
	if e.former != nil {
		for address := range e.former.Of {
			e.hand(address)
		}
	}
}

// hand decides it of one address.
func (e *Engine) hand(address netip.Addr) {
	f := &e.node.Forwarding
	if f.Former == nil {
		return
	}
	former := e.formerOf(address)
	switch had, is := f.Former[address]; {
	case former == had:
		return
	case former.IsValid():
		f.Former[address] = former
	case is:
		delete(f.Former, address)
	}
	f.Handing++
}

// formerOf is the address of the node that had an address before this one; invalid if there is
// none, or if it has none of the family. Where the hellos have not told, it is the candidate
// that would have it if this node were not: so this node knows before it has told anybody
// that it is a candidate, as when it is back. Who never had the address is asked in vain, and
// refuses as this node would have.
func (e *Engine) formerOf(address netip.Addr) netip.Addr {
	c, former, told := e.say.cluster, "", false
	if e.former != nil {
		former, told = e.former.Of[address]
	}
	for _, node := range e.node.Layer2[address].Candidates {
		if _, fallen := c.Fallen[node]; !told && !fallen && node != e.options.Node {
			former, told = node, true
		}
	}
	if node := c.Nodes[former]; node != nil {
		return firstOf(node.Addresses, addr.FamilyOf(address))
	}
	return netip.Addr{}
}
