package desired

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
)

// refused are Forwarding.Refused: the aggregates that this node announces, and the VIPs of Services that another proxy
// forwards. That proxy's own rules come first: what it translates, or takes as an address of this node, is not refused. Within
// an aggregate, addresses of nodes and of routers are no VIPs. One that an IPReservation holds and no Service uses is refused:
// else a namespace that may reserve it has packets to it go back and forth between a router and the nodes.
func (e *Engine) refused() []netip.Prefix {
	var b netipx.IPSetBuilder
	for _, session := range e.node.BGP {
		for prefix := range session.Aggregates {
			b.AddPrefix(prefix)
		}
	}
	for _, vips := range e.proxied {
		for _, a := range vips {
			b.Add(a)
		}
	}
	for a := range e.claims.lifelines {
		b.Remove(a)
	}
	set, err := b.IPSet()
	if err != nil { // of an invalid prefix, which no session has
		return nil
	}
	return set.Prefixes()
}

// echo are Forwarding.Echo: the first address of each family that this node has.
func echo(addrs []netip.Addr, o Options) []netip.Addr {
	if o.NoPing {
		return nil
	}
	var first []netip.Addr
	for _, family := range addr.Families() {
		if a := firstOf(addrs, family); a.IsValid() {
			first = append(first, a)
		}
	}
	return slices.Clip(first)
}

// Pinged returns the VIPs for which this node answers pings: those for which it serves senders from outside.
func (p Port) Pinged() []netip.Addr {
	if !p.servesOutside() {
		return nil
	}
	return p.Announced
}
