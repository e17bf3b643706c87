package arp

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
)

var (
	ourMAC    = MAC{2, 0, 0, 0, 0, 1}
	clientMAC = MAC{2, 0, 0, 0, 0, 2}
	vip       = netip.MustParseAddr("192.0.2.10")
	other     = netip.MustParseAddr("192.0.2.11")
	client    = netip.MustParseAddr("192.0.2.99")
)

func ours(addresses ...netip.Addr) *answers {
	a := &answers{mac: ourMAC, since: map[netip.Addr]announcement{}}
	for _, address := range addresses {
		a.since[address] = 1
	}
	return a
}

func frame(tb testing.TB, op arp.Operation, sender MAC, senderIP, targetIP netip.Addr) []byte {
	tb.Helper()
	f, err := encode(op, sender, senderIP, MAC{}, targetIP, broadcast)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// tagged puts an IEEE 802.1Q tag into a frame.
func tagged(f []byte) []byte {
	return bytes.Join([][]byte{f[:12], {0x81, 0x00, 0x00, 0x05}, f[12:]}, nil)
}

func TestHandle(t *testing.T) {
	ask := frame(t, arp.OperationRequest, clientMAC, client, vip)
	for name, c := range map[string]struct {
		frame   []byte
		answers *answers
		want    event
		bad     bool
	}{
		"a request for ours":        {frame: ask, answers: ours(vip, other), want: asked},
		"a probe for ours":          {frame: frame(t, arp.OperationRequest, clientMAC, netip.IPv4Unspecified(), vip), answers: ours(vip), want: asked},
		"a request for another":     {frame: ask, answers: ours(other), want: ignored},
		"nothing is ours":           {frame: ask, answers: &answers{}, want: ignored},
		"a reply":                   {frame: frame(t, arp.OperationReply, clientMAC, client, vip), answers: ours(vip), want: ignored},
		"another station takes it":  {frame: frame(t, arp.OperationRequest, clientMAC, vip, vip), answers: ours(vip), want: conflict},
		"another station uses it":   {frame: frame(t, arp.OperationRequest, clientMAC, vip, other), answers: ours(vip, other), want: conflict},
		"our own request":           {frame: frame(t, arp.OperationRequest, ourMAC, client, vip), answers: ours(vip), want: ignored},
		"a group asks":              {frame: frame(t, arp.OperationRequest, broadcast, client, vip), answers: ours(vip), want: ignored},
		"nobody asks":               {frame: frame(t, arp.OperationRequest, MAC{}, client, vip), answers: ours(vip), want: ignored},
		"tagged for a VLAN":         {frame: tagged(ask), answers: ours(vip), want: ignored},
		"IPv4, not ARP":             {frame: bytes.Replace(ask, []byte{0x08, 0x06}, []byte{0x08, 0x00}, 1), answers: ours(vip), want: ignored},
		"cut in the header":         {frame: ask[:13], answers: ours(vip), bad: true},
		"cut in the packet":         {frame: ask[:40], answers: ours(vip), bad: true},
		"of another hardware":       {frame: with(ask, 15, 6), answers: ours(vip), bad: true},
		"of another protocol":       {frame: with(ask, 16, 0x86), answers: ours(vip), bad: true},
		"with long MACs":            {frame: with(ask, 18, 8), answers: ours(vip), bad: true},
		"with IPv6-sized addresses": {frame: with(append(bytes.Clone(ask), make([]byte, 40)...), 19, 16), answers: ours(vip), bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			reply, to, what, err := handle(c.frame, c.answers)
			if (err != nil) != c.bad || what != c.want {
				t.Fatalf("got event %d, error %v; want event %d, an error %t", what, err, c.want, c.bad)
			}
			if what != asked {
				if reply != nil {
					t.Fatalf("a reply to a frame that asks nothing: %x", reply)
				}
				return
			}
			checkReply(t, c.frame, reply, to)
		})
	}
}

func with(f []byte, at int, b byte) []byte {
	f = bytes.Clone(f)
	f[at] = b
	return f
}

// checkReply holds a reply against RFC 826: sender and target swapped, sent to
// the asker alone, in the name of our MAC.
func checkReply(tb testing.TB, request, reply []byte, to MAC) {
	tb.Helper()
	var f ethernet.Frame
	var p, q arp.Packet
	if err := f.UnmarshalBinary(reply); err != nil {
		tb.Fatal(err)
	}
	if err := p.UnmarshalBinary(f.Payload); err != nil {
		tb.Fatal(err)
	}
	if err := q.UnmarshalBinary(request[14:]); err != nil {
		tb.Fatal(err)
	}
	switch {
	case p.Operation != arp.OperationReply:
		tb.Errorf("operation %d, want a reply", p.Operation)
	case p.SenderIP != q.TargetIP || p.TargetIP != q.SenderIP:
		tb.Errorf("reply from %s to %s, want from %s to %s", p.SenderIP, p.TargetIP, q.TargetIP, q.SenderIP)
	case MAC(p.SenderHardwareAddr) != ourMAC || MAC(f.Source) != ourMAC:
		tb.Errorf("reply in the name of %s in a frame of %s, want %s", p.SenderHardwareAddr, f.Source, ourMAC)
	case !bytes.Equal(p.TargetHardwareAddr, q.SenderHardwareAddr), !bytes.Equal(f.Destination, q.SenderHardwareAddr), MAC(f.Destination) != to:
		tb.Errorf("reply to %s in a frame to %s (sent to %s), want %s", p.TargetHardwareAddr, f.Destination, to, q.SenderHardwareAddr)
	}
}

func TestGratuitousFramesSayWhereTheAddressIs(t *testing.T) {
	frames, err := gratuitous(ourMAC, vip)
	if err != nil {
		t.Fatal(err)
	}
	for i, op := range []arp.Operation{arp.OperationRequest, arp.OperationReply} {
		var f ethernet.Frame
		var p arp.Packet
		if err := f.UnmarshalBinary(frames[i]); err != nil {
			t.Fatal(err)
		}
		if err := p.UnmarshalBinary(f.Payload); err != nil {
			t.Fatal(err)
		}
		if p.Operation != op || p.SenderIP != vip || p.TargetIP != vip ||
			MAC(p.SenderHardwareAddr) != ourMAC || MAC(f.Destination) != broadcast {
			t.Errorf("frame %d is %+v to %s", i, p, f.Destination)
		}
		if op == arp.OperationReply && MAC(p.TargetHardwareAddr) != ourMAC {
			t.Errorf("the reply's target hardware address is %s, want our own %s", p.TargetHardwareAddr, ourMAC)
		}
	}
	if _, err := gratuitous(ourMAC, netip.MustParseAddr("2001:db8::1")); err == nil {
		t.Error("ARP for an IPv6 address was made")
	}
}

func FuzzHandle(f *testing.F) {
	ask := frame(f, arp.OperationRequest, clientMAC, client, vip)
	f.Add(ask)
	f.Add(tagged(ask))
	f.Add(tagged(tagged(ask)))
	f.Add(frame(f, arp.OperationRequest, clientMAC, netip.IPv4Unspecified(), vip))
	f.Add(frame(f, arp.OperationReply, clientMAC, vip, vip))
	f.Add(with(ask, 18, 255))
	f.Add(with(append(bytes.Clone(ask), make([]byte, 40)...), 19, 16))
	f.Add(ask[:20])
	f.Add([]byte{})
	a := ours(vip, other)
	f.Fuzz(func(t *testing.T, data []byte) {
		reply, to, what, err := handle(data, a)
		if what != asked || err != nil {
			if reply != nil {
				t.Fatalf("a reply to event %d, error %v", what, err)
			}
			return
		}
		if len(reply) != 60 {
			t.Fatalf("a reply of %d bytes", len(reply))
		}
		checkReply(t, data, reply, to)
	})
}
