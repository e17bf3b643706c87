package faults

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/e2e/lab"
)

// link is a packet socket on the LAN link of a machine.
type link struct{ fd int }

// open opens a packet socket for what comes with an EtherType; 0: for nothing.
func open(m *lab.Machine, etherType uint16) (l link, err error) {
	err = m.Inside(func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		protocol := etherType<<8 | etherType>>8
		if l.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(protocol)); err != nil {
			return err
		}
		return unix.Bind(l.fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: eth0.Index})
	})
	return l, err
}

func (l link) send(frame []byte) error {
	_, err := unix.Write(l.fd, frame)
	return err
}

func (l link) close() error { return unix.Close(l.fd) }

// read reads for a while all frames that come.
func (l link) read(lasts time.Duration, take func(frame []byte)) error {
	frame := make([]byte, 2048)
	for end := time.Now().Add(lasts); time.Until(end) > 0; {
		left := unix.NsecToTimeval(max(time.Until(end), time.Millisecond).Nanoseconds())
		if err := unix.SetsockoptTimeval(l.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &left); err != nil {
			return err
		}
		n, err := unix.Read(l.fd, frame)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		default:
			take(frame[:n])
		}
	}
	return nil
}

// record is what a host sends to a UDP port of a machine within a second, over IPv4.
func record(at *lab.Machine, source netip.Addr, port uint16) (frames [][]byte, err error) {
	const from, to = 14 + 12, 14 + 20 + 2 // of the address, and of the port after a header without options
	l, err := open(at, unix.ETH_P_IP)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	err = l.read(time.Second, func(frame []byte) {
		if len(frame) >= to+2 && bytes.Equal(frame[from:from+4], source.AsSlice()) && binary.BigEndian.Uint16(frame[to:]) == port {
			frames = append(frames, bytes.Clone(frame))
		}
	})
	return frames, err
}

// ask asks on the LAN who has an address, and returns the hardware addresses that are told within a moment. It is an
// error if none is.
func ask(from *lab.Machine, address netip.Addr) (macs []string, err error) {
	etherType := uint16(unix.ETH_P_ARP)
	question := arpFrame(from.MAC, arpRequest, from.MAC, from.IPv4, nil, address)
	if address.Is6() {
		etherType, question = unix.ETH_P_IPV6, solicitation(from.MAC, from.IPv6, address)
	}
	l, err := open(from, etherType)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.send(question); err != nil {
		return nil, err
	}
	const moment = 300 * time.Millisecond
	err = l.read(moment, func(frame []byte) {
		if mac := tells(frame, address); mac != nil && !slices.Contains(macs, mac.String()) {
			macs = append(macs, mac.String())
		}
	})
	if err != nil {
		return nil, err
	}
	if len(macs) == 0 {
		return nil, fmt.Errorf("no node answers for %s", address)
	}
	return macs, nil
}

// tells is the hardware address that a frame tells of an address; nil if it is about something else.
func tells(frame []byte, address netip.Addr) net.HardwareAddr {
	const ethernet, ipv6 = 14, 40
	body := frame[min(ethernet, len(frame)):]
	switch {
	case address.Is4() && len(body) >= 28 && body[7] == arpReply && bytes.Equal(body[14:18], address.AsSlice()):
		return net.HardwareAddr(bytes.Clone(body[8:14]))
	case address.Is6() && len(body) >= ipv6+32 && body[6] == unix.IPPROTO_ICMPV6 && body[ipv6] == advertised &&
		bytes.Equal(body[ipv6+8:ipv6+24], address.AsSlice()) && body[ipv6+24] == targetStation:
		return net.HardwareAddr(bytes.Clone(body[ipv6+26 : ipv6+32]))
	}
	return nil
}

const (
	arpRequest, arpReply = 1, 2
	solicited            = 135
	advertised           = 136
	sourceStation        = 1
	targetStation        = 2
)

func broadcast() net.HardwareAddr { return bytes.Repeat([]byte{0xff}, 6) }

// ethernet begins a frame.
func ethernet(to, from net.HardwareAddr, etherType uint16) []byte {
	return binary.BigEndian.AppendUint16(slices.Concat(to, from), etherType)
}

// arpFrame is a broadcast ARP packet (RFC 826). Nil is for no hardware address.
func arpFrame(ether net.HardwareAddr, operation uint16, mac net.HardwareAddr, ip netip.Addr, targetMAC net.HardwareAddr, target netip.Addr) []byte {
	if targetMAC == nil {
		targetMAC = make(net.HardwareAddr, 6)
	}
	frame := append(ethernet(broadcast(), ether, unix.ETH_P_ARP), 0, 1, 8, 0, 6, 4)
	frame = binary.BigEndian.AppendUint16(frame, operation)
	return slices.Concat(frame, mac, ip.AsSlice(), targetMAC, target.AsSlice())
}

// solicitation asks for an IPv6 address (RFC 4861, 4.3).
func solicitation(mac net.HardwareAddr, from, target netip.Addr) []byte {
	t := target.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], t[13:])
	message := slices.Concat([]byte{solicited, 0, 0, 0, 0, 0, 0, 0}, t[:], []byte{sourceStation, 1}, mac)
	return icmpv6(mac, from, netip.AddrFrom16(group), message)
}

// advertisement tells all of an IPv6 address without being asked (RFC 4861, 4.4).
func advertisement(ether net.HardwareAddr, target netip.Addr, mac net.HardwareAddr) []byte {
	const overrides = 0x20
	t := target.As16()
	message := slices.Concat([]byte{advertised, 0, 0, 0, overrides, 0, 0, 0}, t[:], []byte{targetStation, 1}, mac)
	return icmpv6(ether, target, netip.MustParseAddr("ff02::1"), message)
}

// icmpv6 is a frame to a multicast group, with the hop limit that neighbour discovery wants.
func icmpv6(ether net.HardwareAddr, from, to netip.Addr, message []byte) []byte {
	source, group := from.As16(), to.As16()
	length := binary.BigEndian.AppendUint16(nil, uint16(len(message)))
	pseudo := slices.Concat(source[:], group[:], []byte{0, 0}, length, []byte{0, 0, 0, unix.IPPROTO_ICMPV6}, message)
	binary.BigEndian.PutUint16(message[2:], checksum(pseudo))
	header := slices.Concat([]byte{0x60, 0, 0, 0}, length, []byte{unix.IPPROTO_ICMPV6, 255}, source[:], group[:])
	return slices.Concat(ethernet(net.HardwareAddr{0x33, 0x33, group[12], group[13], group[14], group[15]}, ether, unix.ETH_P_IPV6), header, message)
}

// udpFrame is a datagram in the name of another host, with TTL 255 and no checksum.
func udpFrame(ether, to net.HardwareAddr, source, destination netip.AddrPort, payload []byte) []byte {
	const header, udp, ttl = 20, 8, 255
	from, dst := source.Addr().As4(), destination.Addr().As4()
	ip := []byte{0x45, 0xc0, 0, 0, 0, 0, 0, 0, ttl, unix.IPPROTO_UDP, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(header+udp+len(payload)))
	ip = slices.Concat(ip, from[:], dst[:])
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	datagram := binary.BigEndian.AppendUint16(nil, source.Port())
	datagram = binary.BigEndian.AppendUint16(datagram, destination.Port())
	datagram = binary.BigEndian.AppendUint16(datagram, uint16(udp+len(payload)))
	return slices.Concat(ethernet(to, ether, unix.ETH_P_IP), ip, datagram, []byte{0, 0}, payload)
}

// checksum is that of the Internet (RFC 1071).
func checksum(data []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	if len(data)%2 == 1 {
		sum += uint32(data[len(data)-1]) << 8
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
