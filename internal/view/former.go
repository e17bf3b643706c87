package view

import "net/netip"

// Former says, by the word of the nodes' hellos, who had each of the addresses that this node
// may answer for before it did: of one that another node answers for, that node; of one that
// is here, the last other node. "" is nobody, as of a node that is not alive any more. Of an
// address that is missing nothing is known.
type Former struct{ Of map[netip.Addr]string }
