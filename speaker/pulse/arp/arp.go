// Package arp is the part of answering for IPv4 addresses that is specific to ARP
// (RFC 826): requests, replies, and the gratuitous frames that tell a segment that an
// address has moved. Package neighbour has the rest.
package arp

import (
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/pulse/ether"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// New makes a responder that answers ARP.
func New(log *slog.Logger) *neighbour.Responder { return neighbour.New(protocol{}, log) }

// protocol is ARP for IPv4 over Ethernet.
type protocol struct{}

func (protocol) String() string { return "ARP" }

func (protocol) Listen(i neighbour.Interface) (neighbour.Wire, error) {
	socket, err := ether.Listen(i.Index, i.Name, unix.ETH_P_ARP, filter())
	if err != nil {
		return nil, err
	}
	return wire{socket}, nil
}

// wire is a packet socket. ARP requests are broadcast and reach it anyway.
type wire struct{ *ether.Socket }

func (wire) Hear([]netip.Addr, bool) error { return nil }
