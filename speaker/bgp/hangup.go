package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// hangUp closes the TCP connection of this process between two addresses, as
// the kernel does when the process dies. GoBGP keeps its sockets to itself, so
// the connection is looked for among the process's descriptors.
func hangUp(local, peer netip.AddrPort) error {
	return withConnection(local, peer, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) })
}

// ours tells whether a TCP connection between two addresses is of this process.
func ours(local, peer netip.AddrPort) bool {
	return withConnection(local, peer, func(int) error { return nil }) == nil
}

func withConnection(local, peer netip.AddrPort, do func(fd int) error) error {
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range descriptors {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		found, err := doIf(fd, local, peer, do)
		if found {
			return err
		}
	}
	return fmt.Errorf("no connection from %v to %v among %d descriptors", local, peer, len(descriptors))
}

// doIf works on a duplicate, which keeps the descriptor from becoming
// another socket between the look and the deed.
func doIf(fd int, local, peer netip.AddrPort, do func(fd int) error) (found bool, err error) {
	duplicate, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false, nil // closed meanwhile
	}
	defer func() { err = errors.Join(err, unix.Close(duplicate)) }()
	theirs, err := unix.Getpeername(duplicate)
	if err != nil {
		return false, nil // not a connected socket
	}
	ours, err := unix.Getsockname(duplicate)
	if err != nil || endpoint(theirs) != peer || endpoint(ours) != local {
		return false, nil
	}
	return true, do(duplicate)
}

func endpoint(address unix.Sockaddr) netip.AddrPort {
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	default:
		return netip.AddrPort{}
	}
}
