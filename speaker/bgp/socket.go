package bgp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/view"
)

func onSocket(raw syscall.RawConn, set func(fd int) error) error {
	var failed error
	err := raw.Control(func(fd uintptr) { failed = set(int(fd)) })
	return errors.Join(err, failed)
}

func onConnection(conn *net.TCPConn, set func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return onSocket(raw, set)
}

// sign sets the key of TCP MD5 (RFC 2385) for segments to and from a router; "" for none.
func sign(fd int, router netip.Addr, key view.Secret) error {
	if key == "" {
		return nil
	}
	sig := &unix.TCPMD5Sig{Keylen: uint16(len(key))}
	copy(sig.Key[:], key)
	if router.Is4() {
		sig.Addr.Family = unix.AF_INET
		copy(sig.Addr.Data[2:], router.AsSlice())
	} else {
		sig.Addr.Family = unix.AF_INET6
		copy(sig.Addr.Data[6:], router.AsSlice())
	}
	if err := unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, sig); err != nil {
		return fmt.Errorf("the password for %v cannot be set: %w", router, err)
	}
	return nil
}

// maxTTL is the TTL or hop limit of packets that no router has forwarded (GTSM, RFC 5082).
const maxTTL = 255

// setTTL has the kernel send packets with a TTL or hop limit of 255: routers with GTSM drop others,
// and the rest do not look. With secure the kernel also drops what arrives with less, which is only for
// routers that are set up for it: most send 1 to eBGP peers by default.
func setTTL(fd int, six, secure bool) error {
	level, ttl, minimum := unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MINTTL
	if six {
		level, ttl, minimum = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MINHOPCOUNT
	}
	if err := unix.SetsockoptInt(fd, level, ttl, maxTTL); err != nil || !secure {
		return err
	}
	return unix.SetsockoptInt(fd, level, minimum, maxTTL)
}

// setSendHold has the kernel end the connection when something is not acknowledged, or cannot be sent, for so
// long. A deadline for writing begins only when the send buffer is full, which KEEPALIVEs alone take days for.
func setSendHold(conn *net.TCPConn, hold time.Duration) error {
	return onConnection(conn, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(hold.Milliseconds()))
	})
}

// saveSYN has the kernel keep the SYN of each connection that a listener accepts.
func saveSYN(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_SAVE_SYN, 1) }

// errNoSYN is the error where the kernel did not keep the SYN, as during a flood of them (SYN cookies).
var errNoSYN = errors.New("the kernel has not kept the packet that opened the connection, as while it is flooded with such: the router will try again")

// ttlOfSYN returns the TTL or hop limit of the packet that opened an accepted connection. The kernel tells it
// once.
func ttlOfSYN(conn *net.TCPConn) (int, error) {
	var headers [512]byte // of IP and TCP, with all their options
	size := uint32(len(headers))
	err := onConnection(conn, func(fd int) error {
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_SAVED_SYN,
			uintptr(unsafe.Pointer(&headers)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			return fmt.Errorf("ask for the packet that opened the connection: %w", errno)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return ttlOf(headers[:size])
}

// ttlOf returns the TTL or hop limit in the IP header of a packet.
func ttlOf(packet []byte) (int, error) {
	const (
		header4, ttlAt      = 20, 8
		header6, hopLimitAt = 40, 7
	)
	if len(packet) == 0 {
		return 0, errNoSYN
	}
	switch version := packet[0] >> 4; {
	case version == 4 && len(packet) >= header4:
		return int(packet[ttlAt]), nil
	case version == 6 && len(packet) >= header6:
		return int(packet[hopLimitAt]), nil
	}
	return 0, fmt.Errorf("the kernel keeps something else than an IP packet: %d octets, the first %#x", len(packet), packet[0])
}

func ends(conn net.Conn) (local, remote netip.AddrPort) {
	return unmapped(conn.LocalAddr()), unmapped(conn.RemoteAddr())
}

func unmapped(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
