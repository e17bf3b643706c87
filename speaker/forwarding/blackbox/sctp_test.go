package blackbox_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"net"
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// Chunks that open an association (RFC 9260, 3.3).
const (
	sctpInit    = 1
	sctpInitAck = 2
)

// sctpPacket is an SCTP packet with one chunk that opens an association.
func sctpPacket(chunk byte, from, to uint16, tag uint32) []byte {
	p := binary.BigEndian.AppendUint16(nil, from)
	p = binary.BigEndian.AppendUint16(p, to)
	p = binary.BigEndian.AppendUint32(p, tag)
	p = append(p, 0, 0, 0, 0)             // checksum
	p = append(p, chunk, 0, 0, 20)        // flags, length
	p = append(p, 0, 0, 0, 7, 0, 1, 0, 0) // our tag, window
	p = append(p, 0, 1, 0, 1, 0, 0, 0, 1) // streams, sequence number
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	return p
}

// sctp opens a raw socket for SCTP on a host: this kernel need not have any other.
func sctp(t *testing.T, h *netlab.Host, at netip.Addr) net.PacketConn {
	t.Helper()
	var conn net.PacketConn
	var err error
	h.Do(func() {
		network := "ip4:132"
		if at.Is6() {
			network = "ip6:132"
		}
		conn, err = net.ListenPacket(network, at.String())
	})
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(answerIn))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// receive is the next SCTP packet: from where, to which port, and its chunk.
func receive(conn net.PacketConn) (from netip.AddrPort, to uint16, chunk byte, err error) {
	packet := make([]byte, 1500)
	n, source, err := conn.ReadFrom(packet)
	if err != nil || n < 13 {
		return from, 0, 0, fmt.Errorf("%d bytes: %w", n, err)
	}
	a, err := netip.ParseAddr(source.String())
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(packet)), binary.BigEndian.Uint16(packet[2:]), packet[12], err
}

// TestSCTP opens associations through Services, there and back, beside TCP and UDP
// ones of the same address and port.
func TestSCTP(t *testing.T) {
	const mine, theirs = 4000, 5000
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()[:2]...)
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			for i, name := range []string{"cluster", "local"} {
				p := want.Ports[blackbox.Key(name, view.TCP, f)]
				p.Cluster = blackbox.At(theirs+uint16(i), a.P1)
				if p.ExternalLocal {
					p.Local = p.Cluster
				}
				want.Ports[blackbox.Key(name, view.SCTP, f)] = p
			}
		}
		c.Apply(want)
		for _, f := range addr.Families() {
			a := blackbox.Plan(f)
			for i, to := range []netip.AddrPort{netip.AddrPortFrom(blackbox.Nth(a.VIPs, 1), 80), netip.AddrPortFrom(a.Node, 30002)} {
				if err := associate(sctp(t, c.Client, a.Client), sctp(t, c.P1, a.P1), to, mine, theirs+uint16(i), i == 1, a); err != nil {
					t.Errorf("%s, to %s: %v", f, to, err)
				}
			}
		}
		maps.DeleteFunc(want.Ports, func(key desired.PortKey, _ desired.Port) bool { return key.Protocol == view.SCTP })
		if err := c.askAbout(0, want); err != nil {
			t.Error(err)
		}
	})
}

// associate sends the opening of an association and its answer.
func associate(client, pod net.PacketConn, to netip.AddrPort, mine, theirs uint16, seen bool, a blackbox.Addresses) error {
	defer func() { _, _ = client.Close(), pod.Close() }()
	if _, err := client.WriteTo(sctpPacket(sctpInit, mine, to.Port(), 0), &net.IPAddr{IP: to.Addr().AsSlice()}); err != nil {
		return err
	}
	from, at, chunk, err := receive(pod)
	if err != nil {
		return fmt.Errorf("to the pod: %w", err)
	}
	if chunk != sctpInit || at != theirs || (from.Addr() == a.Client) != seen {
		return fmt.Errorf("the pod got chunk %d at port %d from %s", chunk, at, from)
	}
	if _, err := pod.WriteTo(sctpPacket(sctpInitAck, theirs, from.Port(), 7), &net.IPAddr{IP: from.Addr().AsSlice()}); err != nil {
		return err
	}
	from, at, chunk, err = receive(client)
	if err != nil {
		return fmt.Errorf("back to the client: %w", err)
	}
	if chunk != sctpInitAck || at != mine || from != to {
		return fmt.Errorf("the client got chunk %d at port %d from %s", chunk, at, from)
	}
	return nil
}
