package desired

import (
	"fmt"
	"net/netip"
)

// passive are the sessions that wait for their routers to dial, by the address of the router
// without a zone. A connection that a router opens tells by its two addresses alone for which of
// them it is, and the kernel knows one password of a router: so what two of them say must agree,
// or a connection might be taken for the one without a password.
type passive map[netip.Addr][]waiting

// waiting is one of them.
type waiting struct {
	name string
	id   Identity
}

func (p passive) add(name string, id Identity) {
	if id.Passive && id.PeerAddress.IsValid() {
		router := id.PeerAddress.WithZone("")
		p[router] = append(p[router], waiting{name, id})
	}
}

// refuse tells why a session cannot be beside those that were added; "" if it can.
func (p passive) refuse(id Identity) string {
	if !id.Passive || !id.PeerAddress.IsValid() {
		return ""
	}
	for _, first := range p[id.PeerAddress.WithZone("")] {
		one, other := first.id.SourceAddress, id.SourceAddress
		switch {
		case first.id.PeerAddress == id.PeerAddress && (one == other || !one.IsValid() || !other.IsValid()):
			return fmt.Sprintf("BGPPeer %s waits for connections of %v already, and nothing tells for which of both one is: remove one, or give each a sourceAddress of its own",
				first.name, id.PeerAddress)
		case first.id.Password != id.Password:
			return fmt.Sprintf("BGPPeer %s waits for connections of %v with another password, and the kernel knows one of each router: give both the same",
				first.name, id.PeerAddress)
		}
	}
	return ""
}
