package desired

import (
	"net/netip"

	"fairlead.dev/fairlead/internal/addr"
)

func (e *Engine) updateFormers() {
	f := &e.node.Forwarding
	if f.Former == nil {
		f.Former = map[netip.Addr]netip.Addr{}
		f.FormerRevision++
	}
	for address := range f.Former {
		e.updateFormer(address)
	}
	for address := range e.node.Layer2 {
		e.updateFormer(address)
	}
	if e.former != nil {
		for address := range e.former.Of {
			e.updateFormer(address)
		}
	}
}

func (e *Engine) updateFormer(address netip.Addr) {
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
	f.FormerRevision++
}

// formerOf is the address of the node that owned an address before this one; invalid if there is
// none, or if it has none of the family. While hellos have not told, it is the candidate
// that would own the address if this node were absent: a node that returns knows its predecessor so
// before any peer knows that it is a candidate. A node that never owned the address refuses
// the packets that it is handed, as this node would have.
func (e *Engine) formerOf(address netip.Addr) netip.Addr {
	c, former, told := e.announcer.cluster, "", false
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
