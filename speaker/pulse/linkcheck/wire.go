package linkcheck

import (
	"encoding/binary"
	"errors"
	"net"
	"syscall"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/pulse/ether"
)

const (
	// etherType is the second one for local experiments (IEEE 802), which no bridge may know. Frames
	// with it need no address and pass no packet filter of a host.
	etherType  = 0x88b6
	headerLen  = 14
	maxPayload = 1500
	// control is the priority of network control, as mapped by VLAN interfaces and queues.
	control = 7
)

// group is the Ethernet group of the nodes: of the addresses that are administered locally, and not
// one of IP, so that no switch asks for its members.
func group() net.HardwareAddr { return net.HardwareAddr{0x03, 'F', 'L', 'O', 'L', 0x01} }

// socket is a packet socket on an interface.
type socket struct {
	conn *ether.Socket
	raw  syscall.RawConn
	mac  net.HardwareAddr
	seen []byte // room for what is read
}

// listen opens an interface. A frame with a VLAN tag is for an interface of that VLAN, and frames
// that leave come to packet sockets as well.
func listen(index int, i Interface) (Wire, error) {
	const drop = 5 // the index of the last instruction
	otherwise := func(at int) uint8 { return uint8(drop - at - 1) }
	conn, err := ether.Listen(index, i.Name, etherType, []bpf.Instruction{
		0: bpf.LoadExtension{Num: bpf.ExtType},
		1: bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.PACKET_MULTICAST, SkipTrue: otherwise(1)},
		2: bpf.LoadExtension{Num: bpf.ExtVLANTagPresent},
		3: bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: otherwise(3)},
		4: bpf.RetConstant{Val: headerLen + maxPayload},
		5: bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := errors.Join(conn.JoinGroup(group()), prioritize(raw)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &socket{conn: conn, raw: raw, mac: i.MAC, seen: make([]byte, headerLen+maxPayload)}, nil
}

func prioritize(raw syscall.RawConn) error {
	var set error
	err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY, control)
	})
	return errors.Join(err, set)
}

// Wait is of Wire. It looks whether there is a frame, and else has the runtime wait for one.
func (s *socket) Wait() error {
	return s.raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN)
	})
}

// Take is of Wire. It bypasses the own read of the connection, which would wait.
func (s *socket) Take(buffer []byte) (datagram []byte, come bool, err error) {
	for {
		var n int
		var received error
		err := s.raw.Control(func(fd uintptr) {
			n, _, received = unix.Recvfrom(int(fd), s.seen, unix.MSG_DONTWAIT)
		})
		switch {
		case err != nil:
			return nil, false, err
		case errors.Is(received, unix.EAGAIN), errors.Is(received, unix.EINTR):
			return nil, false, nil
		case received != nil:
			return nil, false, received
		case n < headerLen:
			continue
		}
		if datagram, ok := disclose(s.seen[headerLen:n]); ok {
			return buffer[:copy(buffer, datagram)], true, nil
		}
	}
}

// Write is of Wire.
func (s *socket) Write(datagram []byte) error {
	b := append(make([]byte, 0, headerLen+lengthSize+len(datagram)), group()...)
	b = append(b, s.mac...)
	b = binary.BigEndian.AppendUint16(b, etherType)
	_, err := s.conn.WriteTo(append(b, enclose(datagram)...), &packet.Addr{HardwareAddr: group()})
	return err
}

// Close is of Wire.
func (s *socket) Close() error { return s.conn.Close() }
