package view

import "net/netip"

// Former has the previous owners of the addresses that this node may answer for, by the hellos of the
// nodes: of an address that another node owns, that node; of one that this node owns, the last other
// node. "": no node, as when the owner died. Nothing is known of an address that is missing.
type Former struct{ Of map[netip.Addr]string }
