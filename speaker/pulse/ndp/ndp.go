// Package ndp is the part of answering for IPv6 addresses that is neighbour
// discovery's own (RFC 4861): what a solicitation looks like, the advertisement,
// and the groups that solicitations are sent to. Package neighbour has the rest.
//
// It reads frames, not an ICMPv6 socket: a kernel hands a socket nothing that is
// sent to an address which no interface has, and so no probe by which a neighbour
// checks from time to time that the address is still where it was.
//
// The advertisements come from the address that they are about, as the kernel's
// own do, so that no other address of the interface is needed. Their router flag
// is not set, though the node may be a router: who has a router at an address may
// send it packets to anywhere, and here only those to the address are wanted.
package ndp

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// New makes a responder that answers neighbour solicitations.
func New(log *slog.Logger) *neighbour.Responder { return neighbour.New(protocol{}, log) }

// protocol is NDP over Ethernet.
type protocol struct{}

func (protocol) String() string { return "NDP" }

func (protocol) Listen(i neighbour.Interface) (neighbour.Wire, error) {
	program, err := filter()
	if err != nil {
		return nil, fmt.Errorf("assemble the filter: %w", err)
	}
	conn, err := packet.Listen(&net.Interface{Index: i.Index, Name: i.Name}, packet.Raw, unix.ETH_P_IPV6,
		&packet.Config{Filter: program})
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn, groups: groups{index: i.Index}}, nil
}

// wire is a packet socket and the groups that its interface is a member of.
type wire struct {
	*packet.Conn
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
	return w.Conn.Close()
}
