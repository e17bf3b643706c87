package ndp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"
)

// perSocket is how many groups one socket joins. The kernel bounds the memory of
// a socket (net.core.optmem_max), which is 20 kB at least: some 300 groups.
const perSocket = 64

// groups are the solicited-node groups (RFC 4291, section 2.7.1) that an
// interface is made a member of. The kernel then lets their frames in, and tells
// the switches that forward by what hosts ask for (MLD snooping). It joins again
// by itself when the interface comes back after it was down.
type groups struct {
	index   int // of the interface
	sockets []*socket
	joined  map[netip.Addr]*socket
}

// socket is there for its memberships only.
type socket struct {
	fd     int
	groups int
}

// join makes the interface a member of exactly the groups of the addresses. With
// an error it is a member of some.
func (g *groups) join(addresses []netip.Addr) error {
	want := make(map[netip.Addr]bool, len(addresses))
	for _, a := range addresses {
		group, err := ndp.SolicitedNodeMulticast(a)
		if err != nil {
			return err
		}
		want[group] = true
	}
	for group, in := range g.joined {
		if !want[group] {
			g.drop(group, in)
		}
	}
	for group := range want {
		if g.joined[group] != nil {
			continue
		}
		if err := g.add(group); err != nil {
			return fmt.Errorf("join group %s: %w", group, err)
		}
	}
	return nil
}

// leave leaves all groups.
func (g *groups) leave() {
	for _, s := range g.sockets {
		s.close()
	}
	g.sockets, g.joined = nil, nil
}

func (g *groups) add(group netip.Addr) error {
	s, err := g.roomy()
	if err != nil {
		return err
	}
	if err := unix.SetsockoptIPv6Mreq(s.fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, g.membership(group)); err != nil {
		return err
	}
	s.groups++
	if g.joined == nil {
		g.joined = map[netip.Addr]*socket{}
	}
	g.joined[group] = s
	return nil
}

// drop leaves a group.
func (g *groups) drop(group netip.Addr, in *socket) {
	delete(g.joined, group)
	in.groups--
	err := unix.SetsockoptIPv6Mreq(in.fd, unix.IPPROTO_IPV6, unix.IPV6_LEAVE_GROUP, g.membership(group))
	// The kernel has ended the membership by itself where the interface is gone.
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.ENODEV) {
		in.groups = perSocket // nothing more is asked of it
	}
}

func (g *groups) membership(group netip.Addr) *unix.IPv6Mreq {
	return &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(g.index)}
}

// roomy gives a socket that may join one more group.
func (g *groups) roomy() (*socket, error) {
	for _, s := range g.sockets {
		if s.groups < perSocket {
			return s, nil
		}
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s := &socket{fd: fd}
	g.sockets = append(g.sockets, s)
	return s, nil
}

func (s *socket) close() { _ = unix.Close(s.fd) } // which ends the memberships, whatever it returns
