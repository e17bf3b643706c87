// Package ndp is the part of answering for IPv6 addresses that is specific to
// neighbour discovery (RFC 4861): solicitations, advertisements, and the groups that
// solicitations are sent to. Package neighbour has the rest.
//
// It reads frames, not an ICMPv6 socket: the kernel hands a socket nothing that is sent to
// an address which no interface has. So a socket would miss the probes by which neighbours
// check from time to time that the address is still where it was.
//
// The advertisements come from the address that they are about, as the kernel's own do, so
// that the interface needs no other address. Their router flag is not set, although the node
// may be a router: hosts may send packets for anywhere to an address that they know as a
// router's, and only packets for this address are wanted here.
package ndp

import (
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/pulse/ether"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// New makes a responder that answers neighbour solicitations.
func New(log *slog.Logger) *neighbour.Responder { return neighbour.New(protocol{}, log) }

// protocol is NDP over Ethernet.
type protocol struct{}

func (protocol) String() string { return "NDP" }

func (protocol) Listen(i neighbour.Interface) (neighbour.Wire, error) {
	socket, err := ether.Listen(i.Index, i.Name, unix.ETH_P_IPV6, filter())
	if err != nil {
		return nil, err
	}
	return &wire{Socket: socket, groups: groups{index: i.Index}}, nil
}

// wire is a packet socket and the groups that its interface is a member of.
type wire struct {
	*ether.Socket
	groups groups
}

func (w *wire) Hear(addresses []netip.Addr, afresh bool) error {
	if afresh {
		w.groups.leave()
	}
	return w.groups.join(addresses)
}

func (w *wire) Close() error {
	w.groups.leave()
	return w.Socket.Close()
}
