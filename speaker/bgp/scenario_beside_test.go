package bgp

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
)

// beside gives node 1 a session with another router, which misbehaves, and waits until it has done its worst.
func (s *scene) beside(args []string) {
	does := map[string]func(){
		"silent": s.besideSilent, "flapping": s.besideFlapping, "malformed": s.besideMalformed,
		"half-open": s.besideHalfOpen, "full-table": s.besideFullTable, "password": s.besidePassword, "wrong-as": s.besideWrongAS,
	}
	do := does[strings.Join(args, " ")]
	if do == nil {
		s.fail("want: beside %v", slices.Sorted(maps.Keys(does)))
	}
	do()
}

// besideAt is the address of that router, and the node's in the session with it. Both are the loopback's, of the family
// over which the cell has its session.
func (s *scene) besideAt() (at, from netip.Addr) {
	if !s.local().Is6() {
		return netip.MustParseAddr("127.0.0.32"), netip.MustParseAddr("127.0.0.1")
	}
	at = netip.MustParseAddr("2001:db8:32::32")
	s.near().must("ip", "addr", "replace", at.String(), "dev", "lo", "nodad")
	return at, netip.IPv6Loopback()
}

// besides starts that router; have changes the node's side of the session.
func (s *scene) besides(change func(*peer), have func(*desired.Identity)) *peer {
	at, from := s.besideAt()
	p, n := startPeer(s.t, netip.AddrPortFrom(at, 0).String(), change), s.nodes[0]
	id := p.identity()
	id.MyASN, id.SourceAddress = s.asn(), from
	id.EBGPMultiHop = s.cell.hops == "multihop" && s.cell.as == "ebgp"
	if have != nil {
		have(&id)
	}
	n.change(func() { n.others[other] = desired.Session{Identity: id, Routes: prefixes(vip)} })
	return p
}

// besideSilent takes every connection, and says nothing.
func (s *scene) besideSilent() { s.besides(func(p *peer) { p.silent = true }, nil) }

// besidePassword asks for another password than the node has.
func (s *scene) besidePassword() {
	s.besides(func(p *peer) { p.password = "right" }, func(id *desired.Identity) { id.Password = "wrong" })
}

// besideWrongAS is of another AS than the node was told.
func (s *scene) besideWrongAS() { s.besides(func(p *peer) { p.asn = 65001 }, nil) }

// besideHalfOpen is gone without a word once the session is up: nothing reaches it or comes from it any more, until
// the hold time is over.
func (s *scene) besideHalfOpen() {
	p := s.besides(nil, func(id *desired.Identity) { id.HoldTime, id.KeepaliveTime = 3*time.Second, time.Second })
	s.upAgain(p, 1)
	at := p.addr().Addr()
	ip := "ip"
	if at.Is6() {
		ip = "ip6"
	}
	s.near().must("nft", fmt.Sprintf("add table inet gone { chain out { type filter hook output priority 0; %[1]s daddr %[2]v drop; %[1]s saddr %[2]v drop; }; }", ip, at))
	s.told([]string{other, "the hold time passed without a message"})
	p.drop()
	was, _ := p.sessions()
	s.near().must("nft", "delete table inet gone")
	s.upAgain(p, was+1)
}

// upAgain waits until the session with the other router is up, and was so many times.
func (s *scene) upAgain(p *peer, times int) {
	s.near().waitFor("the session with the other is up", func() bool { n, is := p.sessions(); return is && n >= times })
}

// besideFullTable sends a full table of 100,000 routes twice, of each family of the cell.
func (s *scene) besideFullTable() {
	p := s.besides(nil, nil)
	s.upAgain(p, 1)
	for range 2 {
		for _, f := range s.families() {
			for some := range slices.Chunk(slices.Collect(manyPrefixes(f.afi, 100_000)), 400) {
				if _, err := p.conn().Write(s.reachable(some)); err != nil {
					s.fail("%v", err)
				}
			}
		}
	}
}

// reachable is an UPDATE of that router with these prefixes of one family. All of one family have the same length.
func (s *scene) reachable(some []netip.Prefix) []byte {
	attributes := []byte{
		0x40, 1, 1, 0, // ORIGIN: IGP
		0x40, 2, 6, 2, 1, 0, 0, routerASN >> 8, routerASN & 0xff, // AS_PATH
	}
	if s.cell.as == "ibgp" {
		attributes = []byte{
			0x40, 1, 1, 0,
			0x40, 2, 0,
			0x40, 5, 4, 0, 0, 0, 100, // LOCAL_PREF
		}
	}
	var nlri []byte
	for _, p := range some {
		nlri = append(append(nlri, byte(p.Bits())), p.Addr().AsSlice()[:p.Bits()/8]...)
	}
	if some[0].Addr().Is4() {
		attributes = append(attributes, 0x40, 3, 4, 127, 0, 0, 32) // NEXT_HOP
	} else {
		reach := append([]byte{0, 2, 1, 16}, node6b.AsSlice()...) // RFC 4760, 3: IPv6 unicast, and the next hop
		reach = append(append(reach, 0), nlri...)
		attributes = append(binary.BigEndian.AppendUint16(append(attributes, 0x90, 14), uint16(len(reach))), reach...)
		nlri = nil
	}
	body := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(attributes))) // nothing is withdrawn
	return message(2, append(append(body, attributes...), nlri...)...)
}

// besideFlapping opens a session up to ten times a second, and drops it without a word as soon as it is up, fifty times.
func (s *scene) besideFlapping() {
	const flaps = 50
	p := s.besides(nil, func(id *desired.Identity) { id.Passive = true })
	at, from := s.besideAt()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(at, 0))}
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	began := time.Now()
	for n := 0; n < flaps; {
		if time.Since(began) > patience {
			s.fail("it was up %d times in %v, want %d", n, time.Since(began), flaps)
		}
		<-pace.C
		conn, err := dialer.DialContext(s.t.Context(), "tcp", netip.AddrPortFrom(from, passivePort).String())
		if err != nil {
			continue // the node does not listen yet
		}
		up, _ := p.sessions()
		served := make(chan struct{})
		go func() { defer close(served); p.serve(conn) }()
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		for now := up; now == up && ctx.Err() == nil; now, _ = p.sessions() {
			<-time.After(time.Millisecond)
		}
		cancel()
		_ = conn.Close()
		<-served
		n, _ = p.sessions()
	}
	s.t.Logf("up and down %d times in %v", flaps, time.Since(began))
}

// besideMalformed sends what is no BGP, or not in this place, on sessions that are up.
func (s *scene) besideMalformed() {
	p := s.besides(nil, nil)
	for _, raw := range nonsense() {
		s.upAgain(p, 1)
		was, _ := p.sessions()
		if _, err := p.conn().Write(raw.bytes); err != nil {
			s.fail("%s: %v", raw.name, err)
		}
		if raw.ends {
			s.upAgain(p, was+1)
		}
	}
	s.upAgain(p, 1)
}

// malformation is what no router should send.
type malformation struct {
	name  string
	bytes []byte
	ends  bool // the session, for RFC 4271 says so
}

func nonsense() []malformation {
	length := func(n uint16) []byte { return append(binary.BigEndian.AppendUint16([]byte(marker), n), 4) }
	return []malformation{
		{"no marker", append(make([]byte, 16), 0, 19, 4), true},
		{"shorter than its header", length(5), true},
		{"longer than allowed", length(0xffff), true},
		{"of an unknown type", message(77), true},
		{"keepalive with a body", message(4, 1, 2, 3), true},
		{"update cut short", message(2, 0, 9), true},
		{"attributes beyond the end", message(2, 0, 0, 0xff, 0xff), true},
		{"a prefix of 99 bits", message(2, 0, 0, 0, 0, 99, 1, 2, 3), false}, // nobody reads the prefixes
		{"an open on an open session", message(1, 4, 0xfd, 0xe7, 0, 90, 192, 0, 2, 255, 0), true},
		{"noise", []byte(strings.Repeat("noise", 100)), true},
	}
}
