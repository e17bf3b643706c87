package desired

import "net/netip"

// Source is the source address of what is masqueraded and goes to a prefix.
type Source struct {
	To   netip.Prefix
	From netip.Addr // an address of this node of the same family; invalid: that of the interface
}
