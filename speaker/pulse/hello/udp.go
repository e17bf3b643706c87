package hello

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// bufferSize of the socket, each way: some seconds of hellos of a large
	// mesh, so that neither a pause of this process nor datagrams that wait
	// for the ARP answers of dead nodes cost a hello.
	bufferSize = 4 << 20
	// trafficClass is CS6, network control (RFC 2474, RFC 4594): what a
	// congested switch drops last.
	trafficClass = 0xc0
	// messageProbe is MSG_PROBE of linux/socket.h: nothing is sent, the path is only looked up.
	messageProbe = 0x10
)

// udp is one socket for both families, or for IPv4 where there is no IPv6.
type udp struct {
	conn *net.UDPConn
	port uint16
	raw  syscall.RawConn
	is6  bool
}

func listenUDP(ctx context.Context, port uint16) (Transport, error) {
	return listenUDPOn(ctx, fmt.Sprintf(":%d", port))
}

func listenUDPOn(ctx context.Context, address string) (Transport, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { tune(int(fd)) })
	}}
	conn, err := config.ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	t := &udp{conn: conn.(*net.UDPConn)}
	t.port = t.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	if t.raw, err = t.conn.SyscallConn(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := t.raw.Control(func(fd uintptr) {
		domain, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
		t.is6 = domain == unix.AF_INET6
	}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return t, nil
}

// tune asks for what helps; the mesh works without it, so errors are not told.
// The forced buffers exceed the system's limits and need CAP_NET_ADMIN.
func tune(fd int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferSize) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferSize)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, bufferSize) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, bufferSize)
	}
	// On an IPv6 socket the first is for the IPv4 datagrams that it sends.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, trafficClass)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, trafficClass)
}

// Send bypasses net's own write, which would wait for room in the send buffer
// and delay the hellos for all other nodes.
func (t *udp) Send(to netip.AddrPort, datagram []byte) error {
	dest, err := t.sockaddr(to)
	if err != nil {
		return err
	}
	var sent error
	err = t.raw.Write(func(fd uintptr) bool {
		sent = unix.Sendto(int(fd), datagram, unix.MSG_DONTWAIT, dest)
		return true
	})
	return errors.Join(err, sent)
}

// sockaddr is the address as this socket takes it.
func (t *udp) sockaddr(to netip.AddrPort) (unix.Sockaddr, error) {
	switch {
	case t.is6:
		return &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}, nil
	case to.Addr().Is4():
		return &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}, nil
	}
	return nil, unix.EAFNOSUPPORT
}

// Confirm tells the kernel that what is sent to an address of the segment gets there (MSG_CONFIRM),
// so that it does not have to ask for the address again. Its questions are few and a second apart:
// where some frames are lost, it gives up now and then, and no hello leaves for seconds.
func (t *udp) Confirm(to netip.AddrPort) {
	dest, err := t.sockaddr(to)
	if err != nil {
		return
	}
	_ = t.raw.Control(func(fd uintptr) {
		_ = unix.Sendto(int(fd), nil, unix.MSG_CONFIRM|messageProbe|unix.MSG_DONTWAIT, dest) // it costs a question only
	})
}

// Wait looks whether there is a datagram, and else has the runtime wait for one.
func (t *udp) Wait() error {
	return t.raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN)
	})
}

// Take bypasses net's own read, which would wait.
func (t *udp) Take(buf []byte) (n int, from netip.AddrPort, come bool, err error) {
	var source unix.Sockaddr
	var received error
	err = t.raw.Control(func(fd uintptr) {
		n, source, received = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
	})
	switch {
	case err != nil:
		return 0, from, false, err
	case errors.Is(received, unix.EAGAIN), errors.Is(received, unix.EINTR):
		return 0, from, false, nil
	case received != nil:
		return 0, from, false, received
	}
	switch s := source.(type) {
	case *unix.SockaddrInet4:
		from = netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		from = netip.AddrPortFrom(netip.AddrFrom16(s.Addr).Unmap(), uint16(s.Port))
	}
	return n, from, true, nil
}

func (t *udp) Close() error { return t.conn.Close() }
