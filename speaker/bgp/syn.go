package bgp

import (
	"errors"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keepSyn has the kernel keep, of each connection that is taken from a listener, the packet by
// which it was opened.
func keepSyn(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_SAVE_SYN, 1) }

// errNoSyn is for connections of which the kernel did not keep that packet, as while it is flooded
// with such (SYN cookies).
var errNoSyn = errors.New("the kernel has not kept the packet that opened the connection, as while it is flooded with such: the router will try again")

// openedFrom is the TTL or hop limit of the packet by which a connection was opened. It tells
// it once.
func openedFrom(conn *net.TCPConn) (hops int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var headers [512]byte // of IP and TCP, with all their options
	size := uint32(len(headers))
	var errno unix.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.IPPROTO_TCP, unix.TCP_SAVED_SYN,
			uintptr(unsafe.Pointer(&headers)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err == nil && errno != 0 {
		err = fmt.Errorf("ask for the packet that opened the connection: %w", errno)
	}
	if err != nil {
		return 0, err
	}
	return hopsIn(headers[:size])
}

// hopsIn is the TTL or hop limit in the header of a packet.
func hopsIn(packet []byte) (int, error) {
	const (
		header4, ttlAt      = 20, 8
		header6, hopLimitAt = 40, 7
	)
	if len(packet) == 0 {
		return 0, errNoSyn
	}
	switch version := packet[0] >> 4; {
	case version == 4 && len(packet) >= header4:
		return int(packet[ttlAt]), nil
	case version == 6 && len(packet) >= header6:
		return int(packet[hopLimitAt]), nil
	}
	return 0, fmt.Errorf("the kernel keeps something else than an IP packet: %d octets, the first %#x", len(packet), packet[0])
}
