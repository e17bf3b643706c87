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
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range descriptors {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		found, err := shutdownIf(fd, local, peer)
		if found {
			return err
		}
	}
	return fmt.Errorf("no connection from %v to %v among %d descriptors", local, peer, len(descriptors))
}

// shutdownIf works on a duplicate, which keeps the descriptor from becoming
// another socket between the look and the deed.
func shutdownIf(fd int, local, peer netip.AddrPort) (found bool, err error) {
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
	return true, unix.Shutdown(duplicate, unix.SHUT_RDWR)
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
