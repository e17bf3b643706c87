package arp

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"

	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

var (
	ourMAC    = neighbour.MAC{2, 0, 0, 0, 0, 1}
	clientMAC = neighbour.MAC{2, 0, 0, 0, 0, 2}
	forgerMAC = neighbour.MAC{2, 0, 0, 0, 0, 3}
	vip       = netip.MustParseAddr("192.0.2.10")
	other     = netip.MustParseAddr("192.0.2.11")
	client    = netip.MustParseAddr("192.0.2.99")
)

func ours(addresses ...netip.Addr) *neighbour.Answers {
	return neighbour.NewAnswers(ourMAC, addresses...)
}

func frame(tb testing.TB, op arp.Operation, sender neighbour.MAC, senderIP, targetIP netip.Addr) []byte {
	tb.Helper()
	f, err := encode(op, sender, senderIP, neighbour.MAC{}, targetIP, neighbour.Broadcast())
	if err != nil {
		tb.Fatal(err)
	}
	return f.Bytes
}

// tagged puts an IEEE 802.1Q tag into a frame.
func tagged(f []byte) []byte {
	return bytes.Join([][]byte{f[:12], {0x81, 0x00, 0x00, 0x05}, f[12:]}, nil)
}

func TestHandle(t *testing.T) {
	ask := frame(t, arp.OperationRequest, clientMAC, client, vip)
	for name, c := range map[string]struct {
		frame   []byte
		answers *neighbour.Answers
		want    neighbour.Event
		bad     bool
	}{
		"a request for ours":        {frame: ask, answers: ours(vip, other), want: neighbour.Asked},
		"a probe for ours":          {frame: frame(t, arp.OperationRequest, clientMAC, netip.IPv4Unspecified(), vip), answers: ours(vip), want: neighbour.Asked},
		"a request for another":     {frame: ask, answers: ours(other), want: neighbour.Ignored},
		"nothing is ours":           {frame: ask, answers: ours(), want: neighbour.Ignored},
		"a reply":                   {frame: frame(t, arp.OperationReply, clientMAC, client, vip), answers: ours(vip), want: neighbour.Ignored},
		"another station takes it":  {frame: frame(t, arp.OperationRequest, clientMAC, vip, vip), answers: ours(vip), want: neighbour.Conflict},
		"another station uses it":   {frame: frame(t, arp.OperationRequest, clientMAC, vip, other), answers: ours(vip, other), want: neighbour.Conflict},
		"our own request":           {frame: frame(t, arp.OperationRequest, ourMAC, client, vip), answers: ours(vip), want: neighbour.Ignored},
		"a group asks":              {frame: frame(t, arp.OperationRequest, neighbour.Broadcast(), client, vip), answers: ours(vip), want: neighbour.Ignored},
		"nobody asks":               {frame: frame(t, arp.OperationRequest, neighbour.MAC{}, client, vip), answers: ours(vip), want: neighbour.Ignored},
		"tagged for a VLAN":         {frame: tagged(ask), answers: ours(vip), want: neighbour.Ignored},
		"IPv4, not ARP":             {frame: bytes.Replace(ask, []byte{0x08, 0x06}, []byte{0x08, 0x00}, 1), answers: ours(vip), want: neighbour.Ignored},
		"cut in the header":         {frame: ask[:13], answers: ours(vip), bad: true},
		"cut in the packet":         {frame: ask[:40], answers: ours(vip), bad: true},
		"of another hardware":       {frame: with(ask, 15, 6), answers: ours(vip), bad: true},
		"of another protocol":       {frame: with(ask, 16, 0x86), answers: ours(vip), bad: true},
		"with long MACs":            {frame: with(ask, 18, 8), answers: ours(vip), bad: true},
		"with IPv6-sized addresses": {frame: with(append(bytes.Clone(ask), make([]byte, 40)...), 19, 16), answers: ours(vip), bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := protocol{}.Handle(c.frame, c.answers)
			reply, what := found.Reply, found.What
			if (err != nil) != c.bad || what != c.want {
				t.Fatalf("got event %d, error %v; want event %d, an error %t", what, err, c.want, c.bad)
			}
			if what != neighbour.Asked {
				if reply.Bytes != nil {
					t.Fatalf("a reply to a frame that asks nothing: %x", reply.Bytes)
				}
				return
			}
			checkReply(t, c.frame, reply)
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
func checkReply(tb testing.TB, request []byte, reply neighbour.Frame) {
	tb.Helper()
	var f ethernet.Frame
	var p, q arp.Packet
	if err := f.UnmarshalBinary(reply.Bytes); err != nil {
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
	case neighbour.MAC(p.SenderHardwareAddr) != ourMAC || neighbour.MAC(f.Source) != ourMAC:
		tb.Errorf("reply in the name of %s in a frame of %s, want %s", p.SenderHardwareAddr, f.Source, ourMAC)
	case !bytes.Equal(p.TargetHardwareAddr, q.SenderHardwareAddr), !bytes.Equal(f.Destination, q.SenderHardwareAddr), neighbour.MAC(f.Destination) != reply.To:
		tb.Errorf("reply to %s in a frame to %s (sent to %s), want %s", p.TargetHardwareAddr, f.Destination, reply.To, q.SenderHardwareAddr)
	}
}

func TestGratuitousFramesSayWhereTheAddressIs(t *testing.T) {
	frames, err := protocol{}.Frames(neighbour.Announcement, ourMAC, vip)
	if err != nil {
		t.Fatal(err)
	}
	for i, op := range []arp.Operation{arp.OperationRequest, arp.OperationReply} {
		var f ethernet.Frame
		var p arp.Packet
		if err := f.UnmarshalBinary(frames[i].Bytes); err != nil {
			t.Fatal(err)
		}
		if err := p.UnmarshalBinary(f.Payload); err != nil {
			t.Fatal(err)
		}
		if p.Operation != op || p.SenderIP != vip || p.TargetIP != vip ||
			neighbour.MAC(p.SenderHardwareAddr) != ourMAC || neighbour.MAC(f.Destination) != neighbour.Broadcast() || frames[i].To != neighbour.Broadcast() {
			t.Errorf("frame %d is %+v to %s", i, p, f.Destination)
		}
		if op == arp.OperationReply && neighbour.MAC(p.TargetHardwareAddr) != ourMAC {
			t.Errorf("the reply's target hardware address is %s, want our own %s", p.TargetHardwareAddr, ourMAC)
		}
	}
	if _, err := (protocol{}).Frames(neighbour.Announcement, ourMAC, netip.MustParseAddr("2001:db8::1")); err == nil {
		t.Error("ARP for an IPv6 address was made")
	}
}

// TestClaims: who has an address of ours, or wants the one that we probe.
func TestClaims(t *testing.T) {
	probe := func(of netip.Addr, by neighbour.MAC) []byte {
		return frame(t, arp.OperationRequest, by, netip.IPv4Unspecified(), of)
	}
	from := func(source neighbour.MAC, frame []byte) []byte {
		copy(frame[6:12], source[:])
		return frame
	}
	toUs := frame(t, arp.OperationReply, clientMAC, other, client)
	copy(toUs, ourMAC[:])
	probing := ours(other).Watching(vip)
	for name, c := range map[string]struct {
		frame []byte
		want  neighbour.Claim
	}{
		"a reply about ours":         {frame(t, arp.OperationReply, clientMAC, other, client), neighbour.Claim{Address: other, Station: clientMAC}},
		"a reply about the probed":   {frame(t, arp.OperationReply, clientMAC, vip, client), neighbour.Claim{Address: vip, Station: clientMAC}},
		"a question from the probed": {frame(t, arp.OperationRequest, clientMAC, vip, client), neighbour.Claim{Address: vip, Station: clientMAC}},
		"one tells of ours":          {frame(t, arp.OperationRequest, clientMAC, other, other), neighbour.Claim{Address: other, Station: clientMAC, Announced: true}},
		"another probes the same":    {probe(vip, clientMAC), neighbour.Claim{Address: vip, Station: clientMAC, Probe: true}},
		"a reply to us":              {toUs, neighbour.Claim{Address: other, Station: clientMAC, Reply: true}},
		"a reply in another's name": {
			from(forgerMAC, frame(t, arp.OperationReply, clientMAC, other, client)),
			neighbour.Claim{Address: other, Station: clientMAC, Source: forgerMAC},
		},
		"a probe in another's name":       {from(forgerMAC, probe(vip, clientMAC)), neighbour.Claim{Address: vip, Station: clientMAC, Source: forgerMAC, Probe: true}},
		"our own probe":                   {probe(vip, ourMAC), neighbour.Claim{}},
		"a reply about somebody else":     {frame(t, arp.OperationReply, clientMAC, client, vip), neighbour.Claim{}},
		"a question for the probed":       {frame(t, arp.OperationRequest, clientMAC, client, vip), neighbour.Claim{}},
		"a reply in the name of nobody":   {frame(t, arp.OperationReply, clientMAC, netip.IPv4Unspecified(), vip), neighbour.Claim{}},
		"another probes what is not ours": {probe(client, clientMAC), neighbour.Claim{}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := protocol{}.Handle(c.frame, probing)
			if err != nil || found.Claim != c.want || found.Reply.Bytes != nil {
				t.Fatalf("found %+v, error %v; want the claim %+v", found, err, c.want)
			}
			if conflict := found.What == neighbour.Conflict; conflict != (c.want != neighbour.Claim{}) {
				t.Errorf("event %d", found.What)
			}
		})
	}
}

// TestWhoIsProbedIsAnswered: the gateway, while it is probed, asks for an address of ours. That it has its
// own is noted, and it gets its answer as any client.
func TestWhoIsProbedIsAnswered(t *testing.T) {
	question := frame(t, arp.OperationRequest, clientMAC, client, vip)
	found, err := protocol{}.Handle(question, ours(vip).Watching(client))
	if want := (neighbour.Claim{Address: client, Station: clientMAC}); err != nil || found.What != neighbour.Conflict || found.Claim != want {
		t.Fatalf("found %+v, error %v; want the claim %+v", found, err, want)
	}
	checkReply(t, question, found.Reply)
}

// TestAProbeChangesNobodysTable: it has no sender's address (RFC 5227 section 2.1.1).
func TestAProbeChangesNobodysTable(t *testing.T) {
	frames, err := protocol{}.Frames(neighbour.Probe, ourMAC, vip)
	if err != nil || len(frames) != 1 || frames[0].To != neighbour.Broadcast() {
		t.Fatal(frames, err)
	}
	var p arp.Packet
	if err := p.UnmarshalBinary(frames[0].Bytes[14:]); err != nil {
		t.Fatal(err)
	}
	if p.Operation != arp.OperationRequest || !p.SenderIP.IsUnspecified() || p.TargetIP != vip ||
		neighbour.MAC(p.SenderHardwareAddr) != ourMAC || neighbour.MAC(p.TargetHardwareAddr) != (neighbour.MAC{}) {
		t.Errorf("the probe is %+v", p)
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
	a := ours(vip, other).Watching(client)
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := protocol{}.Handle(data, a)
		reply, what := found.Reply, found.What
		if (reply.Bytes != nil) != (what == neighbour.Asked) && !a.Probes(found.Claim.Address) || reply.Bytes != nil && err != nil {
			t.Fatalf("a reply of %d bytes to event %d, error %v", len(reply.Bytes), what, err)
		}
		if reply.Bytes == nil {
			return
		}
		if len(reply.Bytes) != 60 {
			t.Fatalf("a reply of %d bytes", len(reply.Bytes))
		}
		checkReply(t, data, reply)
	})
}
