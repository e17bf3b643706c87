package blackbox_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// Flags of a TCP segment.
const (
	tcpSYN = 0x02
	tcpFIN = 0x01
	tcpRST = 0x04
	tcpACK = 0x10
)

// tcpSegment is a TCP segment without options.
type tcpSegment struct {
	From, To netip.AddrPort
	Seq, Ack uint32
	Flags    byte
	Data     int // bytes
}

// tap sees the TCP segments of one family that reach a host, whatever the host
// then does with them, and sends any.
type tap struct {
	family addr.Family
	conn   *os.File
	fd     int
}

// newTap opens a tap on the host.
func newTap(t *testing.T, h *netlab.Host, family addr.Family) *tap {
	t.Helper()
	domain := unix.AF_INET
	if family == addr.IPv6 {
		domain = unix.AF_INET6
	}
	opened := &tap{family: family}
	var err error
	h.Do(func() {
		opened.fd, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	})
	if err != nil {
		t.Fatalf("%s: tap: %v", h.Name, err)
	}
	opened.conn = os.NewFile(uintptr(opened.fd), "tap")
	t.Cleanup(func() { _ = opened.conn.Close() })
	return opened
}

// next waits for a segment that the function picks, and returns an error when none
// comes in time.
func (t *tap) next(timeout time.Duration, pick func(tcpSegment) bool) (tcpSegment, error) {
	if err := t.conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return tcpSegment{}, err
	}
	raw, err := t.conn.SyscallConn()
	if err != nil {
		return tcpSegment{}, err
	}
	buffer := make([]byte, 1<<16)
	for {
		var s tcpSegment
		var ok bool
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, from, err := unix.Recvfrom(int(fd), buffer, 0)
			if errors.Is(err, unix.EAGAIN) {
				return false
			}
			failed = err
			if err == nil {
				s, ok = t.parse(buffer[:n], from)
			}
			return true
		})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return tcpSegment{}, netlab.ErrSilence
		}
		if err := errors.Join(err, failed); err != nil {
			return tcpSegment{}, err
		}
		if ok && pick(s) {
			return s, nil
		}
	}
}

// parse reads a segment. With IPv4 the kernel hands out the header before it; with
// IPv6 it does not, and the destination's address stays unknown.
func (t *tap) parse(packet []byte, from unix.Sockaddr) (tcpSegment, bool) {
	var s tcpSegment
	var source, destination netip.Addr
	if t.family == addr.IPv4 {
		if len(packet) < 20 || len(packet) < int(packet[0]&15)*4 {
			return s, false
		}
		source, _ = netip.AddrFromSlice(packet[12:16])
		destination, _ = netip.AddrFromSlice(packet[16:20])
		packet = packet[int(packet[0]&15)*4:]
	} else if six, ok := from.(*unix.SockaddrInet6); ok {
		source = netip.AddrFrom16(six.Addr)
	}
	if len(packet) < 20 || len(packet) < int(packet[12]>>4)*4 {
		return s, false
	}
	s.From = netip.AddrPortFrom(source, binary.BigEndian.Uint16(packet))
	s.To = netip.AddrPortFrom(destination, binary.BigEndian.Uint16(packet[2:]))
	s.Seq, s.Ack = binary.BigEndian.Uint32(packet[4:]), binary.BigEndian.Uint32(packet[8:])
	s.Flags, s.Data = packet[13], len(packet)-int(packet[12]>>4)*4
	return s, true
}

// send sends a segment from the host, which must have its source address. From then
// on the tap sees what is sent to that address only. The error is the kernel's.
func (t *tap) send(s tcpSegment) error {
	packet := make([]byte, 20+s.Data)
	binary.BigEndian.PutUint16(packet, s.From.Port())
	binary.BigEndian.PutUint16(packet[2:], s.To.Port())
	binary.BigEndian.PutUint32(packet[4:], s.Seq)
	binary.BigEndian.PutUint32(packet[8:], s.Ack)
	packet[12], packet[13] = 5<<4, s.Flags
	binary.BigEndian.PutUint16(packet[14:], 1<<15-1) // window
	sum := uint32(unix.IPPROTO_TCP + len(packet))
	for _, part := range [][]byte{s.From.Addr().AsSlice(), s.To.Addr().AsSlice(), packet} {
		for i, b := range part {
			sum += uint32(b) << (8 * (1 - i%2))
		}
	}
	for sum>>16 > 0 {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(packet[16:], ^uint16(sum))
	socket := func(a netip.Addr) unix.Sockaddr {
		if t.family == addr.IPv4 {
			return &unix.SockaddrInet4{Addr: a.As4()}
		}
		return &unix.SockaddrInet6{Addr: a.As16()}
	}
	if err := unix.Bind(t.fd, socket(s.From.Addr())); err != nil {
		return fmt.Errorf("send from %s: %w", s.From, err)
	}
	// A dropped packet is told to its sender where it leaves; that is no failure.
	if err := unix.Sendto(t.fd, packet, 0, socket(s.To.Addr())); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("send %v: %w", s, err)
	}
	return nil
}
