// Package api is what the agent and pulse tell each other: the agent what the node is to answer for, a Table, and
// pulse what is true of it, a State.
package api

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// Table is all that pulse has to know, handed over as a whole each time.
type Table struct {
	Node      string       // this node
	NodeAddrs []netip.Addr // its addresses in the cluster, both families
	Peers     map[string]hello.Peer
	Key       view.Secret  // of the hello mesh; until there is one nothing is answered, and an empty one replaces none
	Serving   bool         // this node can serve addresses at all
	Unable    []netip.Addr // claimed addresses that this node cannot serve
	Leaving   bool         // the node goes for good; the others take over
	ShutsDown bool         // with Leaving: its machine goes with it, and its silence is a death
	// Claims has the addresses that this node may answer for. Their forwarding
	// is in the kernel already.
	Claims map[netip.Addr]desired.Candidacy
	// Elsewhere are the addresses that only other nodes may answer for. One that comes
	// from there is not new to the network. Sorted.
	Elsewhere []netip.Addr
	// Digests sums up the candidates for all these addresses, for nodes to see that their tables differ.
	Digests desired.Digests
	// BFD has the BFD sessions to hold, by BGPPeer name.
	BFD map[string]desired.BFD
	// Unnumbered are the interfaces at whose other ends routers are to be found.
	Unnumbered []string
}

// Addresses returns all that some node is to answer for.
func (t Table) Addresses() map[netip.Addr]bool {
	all := make(map[netip.Addr]bool, len(t.Claims)+len(t.Unable)+len(t.Elsewhere))
	for a := range t.Claims {
		all[a] = true
	}
	for _, a := range slices.Concat(t.Unable, t.Elsewhere) {
		all[a] = true
	}
	return all
}
