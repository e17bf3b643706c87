// Package ether has the packet sockets of pulse: whole frames of one EtherType, on one interface.
//
// The interfaces of a node are not to wait for each other, and one whose driver has stopped to send,
// or whose switch has it pause, takes no frames while its carrier is there. So a frame waits a moment
// at most for room in the queue of its interface, and not even that once frames have waited in vain.
package ether

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// writeWithin bounds how long a queue that is full delays what is sent elsewhere. It is enough for the
// queue of an interface that works, which many announcements at once fill as well.
const writeWithin = 5 * time.Millisecond

// readBuffer is asked of the kernel for each socket, in bytes. It holds what a segment of thousands of
// stations asks at once, as after an outage, while this process waits for a processor: five thousand
// questions. Memory is taken only for what waits.
const readBuffer = 4 << 20

// Socket is a packet socket on an interface.
type Socket struct {
	*packet.Conn
	raw      syscall.RawConn
	index    int
	protocol uint16 // the EtherType in network order, as the kernel wants it

	writing sync.Mutex // guards what follows, and has one frame wait at a time
	// stalled: a frame waited in vain, and none was taken since.
	stalled bool

	budget budget // of the one goroutine that reads

	counting sync.Mutex
	dropped  uint64 // until the kernel was last asked, which begins anew then
}

// Listen opens a socket on an interface, which reads the frames of an EtherType that pass the filter.
func Listen(index int, name string, etherType uint16, filter []bpf.Instruction) (*Socket, error) {
	program, err := bpf.Assemble(filter)
	if err != nil {
		return nil, fmt.Errorf("assemble the filter: %w", err)
	}
	conn, err := packet.Listen(&net.Interface{Index: index, Name: name}, packet.Raw, int(etherType), &packet.Config{Filter: program})
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := raw.Control(enlarge); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	order := binary.BigEndian.AppendUint16(nil, etherType)
	return &Socket{Conn: conn, raw: raw, index: index, protocol: binary.NativeEndian.Uint16(order)}, nil
}

// enlarge asks for the buffer. It exceeds the limits of most systems, which needs CAP_NET_ADMIN; without
// it the socket works, too, and what it misses is counted, so errors are not told.
func enlarge(fd uintptr) {
	if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, readBuffer) != nil {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, readBuffer)
	}
}

// Dropped counts the frames for which there was no room in the buffer since the socket was opened. Of
// one that was closed it is the last that was known.
func (s *Socket) Dropped() uint64 {
	s.counting.Lock()
	defer s.counting.Unlock()
	if fresh, err := s.Stats(); err == nil {
		s.dropped += uint64(fresh.Drops)
	}
	return s.dropped
}

// Gone tells whether the interface that the socket was opened on is gone. One that has its index now has
// nothing to do with it: the socket hears nothing any more, and is not told.
func (s *Socket) Gone() bool {
	gone := false
	_ = s.raw.Control(func(fd uintptr) { // its error says that it is closed, which the caller of Close knows
		at, err := unix.Getsockname(int(fd))
		link, is := at.(*unix.SockaddrLinklayer)
		gone = err == nil && is && link.Ifindex != s.index
	})
	return gone
}

// ReadFrom receives the next frame, and takes a pause after too many. One goroutine at a time may read.
func (s *Socket) ReadFrom(buffer []byte) (int, net.Addr, error) {
	n, from, err := s.Conn.ReadFrom(buffer)
	if err == nil {
		if pause := s.budget.take(time.Now()); pause > 0 {
			time.Sleep(pause)
		}
	}
	return n, from, err
}

// WriteTo sends a whole frame to a packet.Addr. It replaces that of the connection, which waits for
// room without end.
func (s *Socket) WriteTo(frame []byte, to net.Addr) (int, error) {
	dest, err := s.sockaddr(to)
	if err != nil {
		return 0, err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	send := func(fd uintptr) error { return unix.Sendto(int(fd), frame, unix.MSG_DONTWAIT, dest) }
	var sent error
	if err := s.raw.Control(func(fd uintptr) { sent = send(fd) }); err != nil {
		return 0, err
	}
	if errors.Is(sent, unix.EAGAIN) && !s.stalled {
		if err := s.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
			return 0, err
		}
		err := s.raw.Write(func(fd uintptr) bool {
			sent = send(fd)
			return !errors.Is(sent, unix.EAGAIN)
		})
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
	}
	s.stalled = errors.Is(sent, unix.EAGAIN)
	switch {
	case s.stalled:
		return 0, fmt.Errorf("interface %d sends nothing and its queue is full: look at its driver and the port of the switch: %w", s.index, sent)
	case sent != nil:
		return 0, os.NewSyscallError("sendto", sent)
	}
	return len(frame), nil
}

// sockaddr is a station or group as the kernel takes it.
func (s *Socket) sockaddr(to net.Addr) (*unix.SockaddrLinklayer, error) {
	dest := unix.SockaddrLinklayer{Ifindex: s.index, Protocol: s.protocol}
	a, ok := to.(*packet.Addr)
	if !ok || len(a.HardwareAddr) == 0 || len(a.HardwareAddr) > len(dest.Addr) {
		return nil, fmt.Errorf("%v is no station to send a frame to", to)
	}
	dest.Halen = uint8(copy(dest.Addr[:], a.HardwareAddr))
	return &dest, nil
}
