package ndp

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"golang.org/x/net/icmp"

	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

var (
	ourMAC    = neighbour.MAC{2, 0, 0, 0, 0, 1}
	clientMAC = neighbour.MAC{2, 0, 0, 0, 0, 2}
	proxyMAC  = neighbour.MAC{2, 0, 0, 0, 0, 3}
	vip       = netip.MustParseAddr("2001:db8::1:10")
	other     = netip.MustParseAddr("2001:db8::1:11")
	client    = netip.MustParseAddr("fe80::99")
	nobody    = netip.IPv6Unspecified()
)

func group(tb testing.TB, a netip.Addr) netip.Addr {
	tb.Helper()
	g, err := ndp.SolicitedNodeMulticast(a)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func source(mac neighbour.MAC) ndp.Option {
	return &ndp.LinkLayerAddress{Direction: ndp.Source, Addr: mac[:]}
}

// asks is a solicitation of the address.
func asks(target netip.Addr, options ...ndp.Option) ndp.Message {
	return &ndp.NeighborSolicitation{TargetAddress: target, Options: options}
}

// frame is a message from a station in a whole frame.
func frame(tb testing.TB, station neighbour.MAC, from, to netip.Addr, m ndp.Message) []byte {
	tb.Helper()
	message, err := ndp.MarshalMessageChecksum(m, from, to)
	if err != nil {
		tb.Fatal(err)
	}
	packet := make([]byte, headerLength, headerLength+len(message))
	packet[0], packet[6], packet[7] = 0x60, 58, 255
	binary.BigEndian.PutUint16(packet[4:], uint16(len(message)))
	copy(packet[8:], from.AsSlice())
	copy(packet[24:], to.AsSlice())
	destination := []byte{0x33, 0x33, 0xff, 0, 0, 0x10} // no matter: the filter looks at it
	f := ethernet.Frame{Destination: destination, Source: station[:], EtherType: ethernet.EtherTypeIPv6, Payload: append(packet, message...)}
	b, err := f.MarshalBinary()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// with changes one byte of a frame.
func with(f []byte, at int, b byte) []byte {
	f = bytes.Clone(f)
	f[at] = b
	return f
}

// mended is with, and a checksum that fits again.
func mended(f []byte, at int, b byte) []byte {
	f = with(f, at, b)
	binary.BigEndian.PutUint16(f[56:], 0)
	from, to := netip.AddrFrom16([16]byte(f[22:38])), netip.AddrFrom16([16]byte(f[38:54]))
	binary.BigEndian.PutUint16(f[56:], checksum(icmp.IPv6PseudoHeader(from.AsSlice(), to.AsSlice()), f[54:]))
	return f
}

// tagged puts an IEEE 802.1Q tag into a frame.
func tagged(f []byte) []byte {
	return bytes.Join([][]byte{f[:12], {0x81, 0x00, 0x00, 0x05}, f[12:]}, nil)
}

// Offsets into a frame, for tests that break it.
const (
	atVersion  = 14
	atLength   = 14 + 5
	atHopLimit = 14 + 7
	atCode     = 54 + 1
	atChecksum = 54 + 2
	atTarget   = 54 + 8
	atOption   = 54 + 24
)

func TestHandle(t *testing.T) {
	nonce := ndp.NewNonce()
	ask := frame(t, clientMAC, client, group(t, vip), asks(vip, source(clientMAC)))
	tells := func(from netip.Addr, station neighbour.MAC, target netip.Addr) []byte {
		return frame(t, station, from, allNodes(), &ndp.NeighborAdvertisement{TargetAddress: target, Override: true})
	}
	for name, c := range map[string]struct {
		frame []byte
		ours  []netip.Addr
		want  neighbour.Event
		bad   bool
		to    neighbour.MAC // of the reply
	}{
		"a solicitation of ours":          {frame: ask, ours: addresses(vip, other), want: neighbour.Asked, to: clientMAC},
		"a solicitation of another":       {frame: ask, ours: addresses(other)},
		"nothing is ours":                 {frame: ask},
		"a probe to the address itself":   {frame: frame(t, clientMAC, client, vip, asks(vip, source(clientMAC))), ours: addresses(vip), want: neighbour.Asked, to: clientMAC},
		"one without an option":           {frame: frame(t, clientMAC, client, vip, asks(vip)), ours: addresses(vip), want: neighbour.Asked, to: clientMAC},
		"the option is another station":   {frame: frame(t, proxyMAC, client, vip, asks(vip, source(clientMAC))), ours: addresses(vip), want: neighbour.Asked, to: clientMAC},
		"the option is no station":        {frame: frame(t, clientMAC, client, vip, asks(vip, source(neighbour.Broadcast()))), ours: addresses(vip), want: neighbour.Asked, to: clientMAC},
		"options that mean nothing here":  {frame: frame(t, clientMAC, client, vip, asks(vip, &ndp.RawOption{Type: 253, Length: 2, Value: make([]byte, 14)}, ndp.NewMTU(1500), source(clientMAC))), ours: addresses(vip), want: neighbour.Asked, to: clientMAC},
		"from a global address":           {frame: frame(t, clientMAC, other, group(t, vip), asks(vip, source(clientMAC))), ours: addresses(vip), want: neighbour.Asked, to: clientMAC},
		"padding behind it":               {frame: append(bytes.Clone(ask), 1, 2, 3), ours: addresses(vip), want: neighbour.Asked, to: clientMAC},
		"who wants the address asks":      {frame: frame(t, clientMAC, nobody, group(t, vip), asks(vip)), ours: addresses(vip), want: neighbour.Asked, to: neighbour.MAC{0x33, 0x33, 0, 0, 0, 1}},
		"and with a nonce":                {frame: frame(t, clientMAC, nobody, group(t, vip), asks(vip, nonce)), ours: addresses(vip), want: neighbour.Asked, to: neighbour.MAC{0x33, 0x33, 0, 0, 0, 1}},
		"who wants another asks":          {frame: frame(t, clientMAC, nobody, group(t, vip), asks(vip)), ours: addresses(other)},
		"another station uses it":         {frame: frame(t, clientMAC, vip, group(t, other), asks(other)), ours: addresses(vip, other), want: neighbour.Conflict},
		"another station tells of it":     {frame: tells(vip, clientMAC, vip), ours: addresses(vip), want: neighbour.Conflict},
		"another station tells of others": {frame: tells(other, clientMAC, other), ours: addresses(vip)},
		"our own advertisement":           {frame: tells(vip, ourMAC, vip), ours: addresses(vip)},
		"our own solicitation":            {frame: frame(t, ourMAC, client, group(t, vip), asks(vip)), ours: addresses(vip)},
		"a group sent it":                 {frame: frame(t, neighbour.Broadcast(), client, group(t, vip), asks(vip)), ours: addresses(vip)},
		"nobody sent it":                  {frame: frame(t, neighbour.MAC{}, client, group(t, vip), asks(vip)), ours: addresses(vip)},
		"a router solicits":               {frame: frame(t, clientMAC, client, allNodes(), &ndp.RouterSolicitation{}), ours: addresses(vip)},
		"tagged for a VLAN":               {frame: tagged(ask), ours: addresses(vip)},
		"IPv4":                            {frame: bytes.Replace(ask, []byte{0x86, 0xdd}, []byte{0x08, 0x00}, 1), ours: addresses(vip)},
		"behind an extension header":      {frame: with(ask, offsetNextHeader, 0), ours: addresses(vip)},

		"no source, and an option":   {frame: frame(t, clientMAC, nobody, group(t, vip), asks(vip, source(clientMAC))), ours: addresses(vip), bad: true},
		"no source, to the address":  {frame: frame(t, clientMAC, nobody, vip, asks(vip)), ours: addresses(vip), bad: true},
		"from a group":               {frame: frame(t, clientMAC, allNodes(), group(t, vip), asks(vip)), ours: addresses(vip), bad: true},
		"of a group":                 {frame: mended(ask, atTarget, 0xff), ours: addresses(vip), bad: true},
		"tells of a group":           {frame: mended(tells(vip, clientMAC, vip), atTarget, 0xff), ours: addresses(vip), bad: true},
		"from outside":               {frame: with(ask, atHopLimit, 254), ours: addresses(vip), bad: true},
		"a wrong checksum":           {frame: with(ask, atChecksum, ask[atChecksum]^1), ours: addresses(vip), bad: true},
		"a code":                     {frame: mended(ask, atCode, 1), ours: addresses(vip), bad: true},
		"an option of no length":     {frame: mended(ask, atOption+1, 0), ours: addresses(vip), bad: true},
		"an option that is too long": {frame: mended(ask, atOption+1, 2), ours: addresses(vip), bad: true},
		"longer than it is":          {frame: with(ask, atLength, 200), ours: addresses(vip), bad: true},
		"shorter than a header":      {frame: with(ask, atLength, 3), ours: addresses(vip), bad: true},
		"not of IPv6":                {frame: with(ask, atVersion, 0x40), ours: addresses(vip), bad: true},
		"cut in the Ethernet header": {frame: ask[:13], ours: addresses(vip), bad: true},
		"cut in the IPv6 header":     {frame: ask[:40], ours: addresses(vip), bad: true},
		"cut in the message":         {frame: ask[:70], ours: addresses(vip), bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := protocol{}.Handle(c.frame, neighbour.NewAnswers(ourMAC, c.ours...))
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
			if reply.To != c.to {
				t.Errorf("reply to %s, want %s", reply.To, c.to)
			}
		})
	}
}

func addresses(all ...netip.Addr) []netip.Addr { return all }

// checkReply holds a reply against RFC 4861, section 7.2.4, with a decoder that
// checks what every receiver must.
func checkReply(tb testing.TB, request []byte, reply neighbour.Frame) {
	tb.Helper()
	q, err := decode(request)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := decode(reply.Bytes)
	if err != nil {
		tb.Fatalf("a reply that nobody would read: %v", err)
	}
	a, ok := p.body.(*ndp.NeighborAdvertisement)
	if !ok {
		tb.Fatalf("a reply of %T", p.body)
	}
	to, everybody := q.from, q.from.IsUnspecified()
	if everybody {
		to = allNodes()
	}
	target := q.body.(*ndp.NeighborSolicitation).TargetAddress
	switch {
	case p.station != ourMAC || !bytes.Equal(reply.Bytes[:6], reply.To[:]):
		tb.Errorf("reply in a frame from %s to %x (sent to %s)", p.station, reply.Bytes[:6], reply.To)
	case p.from != target || p.to != to:
		tb.Errorf("reply from %s to %s, want from %s to %s", p.from, p.to, target, to)
	case a.TargetAddress != target || a.Router || a.Solicited == everybody || !a.Override:
		tb.Errorf("reply %+v", a)
	case len(a.Options) != 1:
		tb.Errorf("reply with options %v", a.Options)
	default:
		l, ok := a.Options[0].(*ndp.LinkLayerAddress)
		if !ok || l.Direction != ndp.Target || !bytes.Equal(l.Addr, ourMAC[:]) {
			tb.Errorf("reply with option %+v", a.Options[0])
		}
	}
}

func TestAnnouncementsOverrideWhatNeighboursKnow(t *testing.T) {
	frames, err := protocol{}.Frames(neighbour.Announcement, ourMAC, vip)
	if err != nil || len(frames) != 1 {
		t.Fatal(frames, err)
	}
	m, err := decode(frames[0].Bytes)
	if err != nil {
		t.Fatal(err)
	}
	a, ok := m.body.(*ndp.NeighborAdvertisement)
	if !ok || a.TargetAddress != vip || !a.Override || a.Solicited || a.Router || len(a.Options) != 1 {
		t.Errorf("announced as %+v", m.body)
	}
	if m.to != allNodes() || (frames[0].To != neighbour.MAC{0x33, 0x33, 0, 0, 0, 1}) {
		t.Errorf("announced to %s at %s", m.to, frames[0].To)
	}
	if _, err := (protocol{}).Frames(neighbour.Announcement, ourMAC, netip.MustParseAddr("192.0.2.1")); err == nil {
		t.Error("an IPv4 address was advertised")
	}
}

// TestClaims: who has an address of ours, or wants the one that we probe.
func TestClaims(t *testing.T) {
	tells := func(station neighbour.MAC, target netip.Addr) []byte {
		return frame(t, station, target, allNodes(), &ndp.NeighborAdvertisement{TargetAddress: target})
	}
	probing := neighbour.NewAnswers(ourMAC, other).Watching(vip)
	for name, c := range map[string]struct {
		frame []byte
		want  neighbour.Claim
	}{
		"one tells of ours":       {tells(clientMAC, other), neighbour.Claim{Address: other, Station: clientMAC, Announced: true}},
		"one tells of the probed": {tells(clientMAC, vip), neighbour.Claim{Address: vip, Station: clientMAC, Announced: true}},
		"one tells of another's": {
			frame(t, proxyMAC, vip, allNodes(), &ndp.NeighborAdvertisement{
				TargetAddress: vip, Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: clientMAC[:]}},
			}),
			neighbour.Claim{Address: vip, Station: clientMAC, Source: proxyMAC, Announced: true},
		},
		"one replies": {
			frame(t, clientMAC, other, netip.MustParseAddr("fe80::1"), &ndp.NeighborAdvertisement{Solicited: true, TargetAddress: other}),
			neighbour.Claim{Address: other, Station: clientMAC, Reply: true},
		},
		"one says to all that it replies": {
			frame(t, clientMAC, other, allNodes(), &ndp.NeighborAdvertisement{Solicited: true, TargetAddress: other}),
			neighbour.Claim{Address: other, Station: clientMAC},
		},
		"one asks from the probed":   {frame(t, clientMAC, vip, group(t, client), asks(client)), neighbour.Claim{Address: vip, Station: clientMAC}},
		"another probes the same":    {frame(t, clientMAC, nobody, group(t, vip), asks(vip)), neighbour.Claim{Address: vip, Station: clientMAC, Probe: true}},
		"our own probe":              {frame(t, ourMAC, nobody, group(t, vip), asks(vip)), neighbour.Claim{}},
		"one tells of somebody else": {tells(clientMAC, client), neighbour.Claim{}},
		"one asks for the probed":    {frame(t, clientMAC, client, group(t, vip), asks(vip)), neighbour.Claim{}},
		"another probes another":     {frame(t, clientMAC, nobody, group(t, client), asks(client)), neighbour.Claim{}},
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
	question := frame(t, clientMAC, client, group(t, vip), asks(vip))
	found, err := protocol{}.Handle(question, neighbour.NewAnswers(ourMAC, vip).Watching(client))
	if want := (neighbour.Claim{Address: client, Station: clientMAC}); err != nil || found.What != neighbour.Conflict || found.Claim != want {
		t.Fatalf("found %+v, error %v; want the claim %+v", found, err, want)
	}
	other, err := protocol{}.Handle(question, neighbour.NewAnswers(ourMAC, vip))
	if err != nil || len(other.Reply.Bytes) == 0 || !bytes.Equal(other.Reply.Bytes, found.Reply.Bytes) || other.Reply.To != found.Reply.To {
		t.Errorf("answered by %x, want what any client gets: %x", found.Reply.Bytes, other.Reply.Bytes)
	}
}

// TestAProbeIsAsKernelsSendIt (RFC 4862, section 5.4.2): what is read by the decoder that
// checks all that a receiver must.
func TestAProbeIsAsKernelsSendIt(t *testing.T) {
	frames, err := protocol{}.Frames(neighbour.Probe, ourMAC, vip)
	if err != nil || len(frames) != 1 {
		t.Fatal(frames, err)
	}
	m, err := decode(frames[0].Bytes)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := m.body.(*ndp.NeighborSolicitation)
	if !ok || s.TargetAddress != vip || len(s.Options) != 0 || !m.from.IsUnspecified() || m.to != group(t, vip) || m.station != ourMAC {
		t.Errorf("the probe is %+v in %+v", m.body, m)
	}
	found, err := protocol{}.Handle(frames[0].Bytes, neighbour.NewAnswers(clientMAC, vip))
	if err != nil || found.What != neighbour.Asked {
		t.Errorf("who has the address finds %+v, error %v", found, err)
	}
	if _, err := (protocol{}).Frames(neighbour.Probe, ourMAC, netip.MustParseAddr("192.0.2.1")); err == nil {
		t.Error("an IPv4 address was solicited")
	}
}

func FuzzHandle(f *testing.F) {
	ask := frame(f, clientMAC, client, group(f, vip), asks(vip, source(clientMAC)))
	f.Add(ask)
	f.Add(tagged(ask))
	f.Add(frame(f, clientMAC, nobody, group(f, vip), asks(vip, ndp.NewNonce())))
	f.Add(frame(f, clientMAC, client, vip, asks(vip)))
	f.Add(frame(f, clientMAC, vip, allNodes(), &ndp.NeighborAdvertisement{TargetAddress: vip, Override: true}))
	f.Add(frame(f, clientMAC, client, vip, asks(vip, &ndp.PrefixInformation{PrefixLength: 64, Prefix: netip.MustParseAddr("2001:db8::")})))
	for option := range 256 { // each is read by another piece of the codec
		f.Add(mended(ask, atOption, byte(option)))
	}
	f.Add(mended(ask, atOption+1, 0))
	f.Add(ask[:60])
	f.Add([]byte{})
	ours := neighbour.NewAnswers(ourMAC, vip, other).Watching(client)
	f.Fuzz(func(t *testing.T, data []byte) {
		// What is found by chance has a wrong checksum, and would end there.
		if length := 14 + headerLength + icmpLength; len(data) >= length && int(binary.BigEndian.Uint16(data[18:])) == len(data)-54 {
			data = mended(data, atCode, data[atCode])
		}
		found, err := protocol{}.Handle(data, ours)
		reply, what := found.Reply, found.What
		if (reply.Bytes != nil) != (what == neighbour.Asked) && !ours.Probes(found.Claim.Address) || reply.Bytes != nil && err != nil {
			t.Fatalf("a reply of %d bytes to event %d, error %v", len(reply.Bytes), what, err)
		}
		if reply.Bytes == nil {
			return
		}
		checkReply(t, data, reply)
	})
}
