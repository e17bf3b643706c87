package bfd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	singleHopPort = 3784 // RFC 5881, 4
	multiHopPort  = 4784 // RFC 5883, 5
	// maxHops is what packets are sent with, and what they come with over one hop
	// (RFC 5881, 5).
	maxHops = 255
	// Packets come from a port of this range, another one for each session (RFC 5881, 4).
	firstSource, sources = 49152, 16384
	// trafficClass is CS6, network control: what a congested switch drops last.
	trafficClass = 0xc0
	// room is that for a packet, with what nobody reads behind it.
	room = 128
)

// kind is a sort of packets that come to a socket of their own.
type kind struct{ six, multiHop bool }

func kindOf(k key) kind { return kind{k.peer.Is6(), k.multiHop} }

func (k kind) port() int {
	if k.multiHop {
		return multiHopPort
	}
	return singleHopPort
}

func (k kind) network() string {
	if k.six {
		return "udp6"
	}
	return "udp4"
}

// datagram is what came.
type datagram struct {
	kind     kind
	from, to netip.Addr // without zones
	zone     int        // index of the interface that a link-local address is on
	hops     int        // TTL or hop limit that is left; 0 if unknown
	body     []byte
}

// network opens the ways in and out; udp is it, and tests have another.
type network interface {
	// listen gives what comes to hear, with lock held.
	listen(k kind, lock sync.Locker, hear func(datagram)) (listener, error)
	dial(k key) (sender, error)
}

type listener interface {
	// drain gives all that waits to hear. The caller holds the lock.
	drain()
	close() error
}

type sender interface {
	send(b []byte) error
	// over is the index of the interface that a link-local peer is on; 0 for any other.
	over() int
	close() error
}

// udp is the network of the kernel.
type udp struct{}

// inlet is a socket that is read.
type inlet struct {
	kind kind
	conn net.PacketConn
	raw  syscall.RawConn
	hear func(datagram)
}

func (udp) listen(k kind, lock sync.Locker, hear func(datagram)) (listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = askForHops(int(fd), k.six) }), err)
	}}
	conn, err := config.ListenPacket(context.Background(), k.network(), fmt.Sprintf(":%d", k.port()))
	if errors.Is(err, unix.EADDRINUSE) {
		err = fmt.Errorf("%w: another BFD daemon runs on this node; stop it, or take bfdProfile out of the BGPPeers", err)
	}
	if err != nil {
		return nil, err
	}
	i := &inlet{kind: k, conn: conn, hear: hear}
	if i.raw, err = conn.(*net.UDPConn).SyscallConn(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go func() {
		var err error
		for err == nil { // until the socket is closed
			err = i.raw.Read(func(fd uintptr) bool {
				lock.Lock()
				defer lock.Unlock()
				return !i.empty(int(fd))
			})
		}
	}()
	return i, nil
}

func askForHops(fd int, six bool) error {
	level, hops, destination := unix.IPPROTO_IP, unix.IP_RECVTTL, unix.IP_PKTINFO
	if six {
		level, hops, destination = unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, unix.IPV6_RECVPKTINFO
	}
	return errors.Join(unix.SetsockoptInt(fd, level, hops, 1), unix.SetsockoptInt(fd, level, destination, 1))
}

func (i *inlet) drain() {
	_ = i.raw.Control(func(fd uintptr) { _ = i.empty(int(fd)) }) // fails for a closed socket, which has nothing
}

func (i *inlet) close() error { return i.conn.Close() }

// empty reads what is there, and tells whether that was all: a flood must not keep
// the lock. An error is taken for the end of it: one that lasts shows as silence.
func (i *inlet) empty(fd int) bool {
	const most = 256
	buf, control := make([]byte, room), make([]byte, room)
	for range most {
		n, nc, _, from, err := unix.Recvmsg(fd, buf, control, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return true
		}
		d := datagram{kind: i.kind, body: buf[:n]}
		switch a := from.(type) {
		case *unix.SockaddrInet4:
			d.from = netip.AddrFrom4(a.Addr)
		case *unix.SockaddrInet6:
			d.from, d.zone = netip.AddrFrom16(a.Addr), int(a.ZoneId)
		}
		d.readControl(control[:nc])
		i.hear(d)
	}
	return false
}

// readControl finds the hops and the destination.
func (d *datagram) readControl(b []byte) {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL && len(m.Data) >= 4,
			m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT && len(m.Data) >= 4:
			d.hops = int(binary.NativeEndian.Uint32(m.Data))
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			d.to = netip.AddrFrom4([4]byte(m.Data[8:12]))
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			d.to = netip.AddrFrom16([16]byte(m.Data[:16]))
		}
	}
}

// outlet is a socket that is written to. Nothing is read from it.
type outlet struct {
	conn net.PacketConn
	raw  syscall.RawConn
	to   unix.Sockaddr
	zone int
}

func (o *outlet) over() int { return o.zone }

func (udp) dial(k key) (sender, error) {
	kind := kindOf(k)
	host := ""
	if k.local.IsValid() {
		host = k.local.WithZone("").String()
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = errors.Join(tune(int(fd), kind.six), bind(int(fd), k.peer.Zone())) }), err)
	}}
	var conn net.PacketConn
	var err error
	for range sources {
		port := firstSource + rand.IntN(sources)
		conn, err = config.ListenPacket(context.Background(), kind.network(), net.JoinHostPort(host, fmt.Sprint(port)))
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	o := &outlet{conn: conn}
	if name := k.peer.Zone(); name != "" {
		zone, err := net.InterfaceByName(name)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		o.zone = zone.Index
	}
	if kind.six {
		o.to = &unix.SockaddrInet6{Port: kind.port(), Addr: k.peer.As16(), ZoneId: uint32(o.zone)}
	} else {
		o.to = &unix.SockaddrInet4{Port: kind.port(), Addr: k.peer.As4()}
	}
	if o.raw, err = conn.(*net.UDPConn).SyscallConn(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return o, nil
}

// bind ties a socket to an interface, "" for none, without which a link-local address means nothing.
func bind(fd int, over string) error {
	if over == "" {
		return nil
	}
	return unix.BindToDevice(fd, over)
}

// tune sets the hops, without which a peer takes nothing, and asks for what helps.
func tune(fd int, six bool) error {
	level, hops, class := unix.IPPROTO_IP, unix.IP_TTL, unix.IP_TOS
	if six {
		level, hops, class = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_TCLASS
	}
	_ = unix.SetsockoptInt(fd, level, class, trafficClass)
	return unix.SetsockoptInt(fd, level, hops, maxHops)
}

// send does not wait for room in the buffer: a late packet is of no use.
func (o *outlet) send(b []byte) error {
	var sent error
	err := o.raw.Write(func(fd uintptr) bool {
		sent = unix.Sendto(int(fd), b, unix.MSG_DONTWAIT, o.to)
		return true
	})
	return errors.Join(err, sent)
}

func (o *outlet) close() error { return o.conn.Close() }
