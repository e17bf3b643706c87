package bgp

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
)

// beside gives node 1 a session with another router, which misbehaves, and waits until it has done its worst.
func (s *scene) beside(args []string) {
	does := map[string]func(){
		"silent": s.besideSilent, "flapping": s.besideFlapping, "malformed": s.besideMalformed,
		"half-open": s.besideHalfOpen, "full-table": s.besideFullTable, "password": s.besidePassword,
	}
	do := does[strings.Join(args, " ")]
	if do == nil {
		s.fail("want: beside %v", slices.Sorted(maps.Keys(does)))
	}
	do()
}

// beside32 is the address of that router.
const beside32 = "127.0.0.32"

// besides starts that router; have changes the node's side of the session.
func (s *scene) besides(change func(*peer), have func(*desired.Identity)) *peer {
	p, n := startPeer(s.t, beside32+":0", change), s.nodes[0]
	id := p.identity()
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

// besideHalfOpen is gone without a word once the session is up: nothing reaches it or comes from it any more, until
// the hold time is over.
func (s *scene) besideHalfOpen() {
	p := s.besides(nil, func(id *desired.Identity) { id.HoldTime, id.KeepaliveTime = 3*time.Second, time.Second })
	s.upAgain(p, 1)
	s.near().must("nft", "add table inet gone { chain out { type filter hook output priority 0; ip daddr "+beside32+" drop; ip saddr "+beside32+" drop; }; }")
	s.told([]string{other, "hold timer expired"})
	p.drop()
	was, _ := p.sessions()
	s.near().must("nft", "delete table inet gone")
	s.upAgain(p, was+1)
}

// upAgain waits until the session with the other router is up, and was so many times.
func (s *scene) upAgain(p *peer, times int) {
	s.near().waitFor("the session with the other is up", func() bool { n, is := p.sessions(); return is && n >= times })
}

// besideFullTable sends a full table of 100,000 routes twice.
func (s *scene) besideFullTable() {
	const inOne, updates = 1000, 100
	p := s.besides(nil, nil)
	s.upAgain(p, 1)
	attributes := []byte{
		0x40, 1, 1, 0, // ORIGIN: IGP
		0x40, 2, 6, 2, 1, 0, 0, routerASN >> 8, routerASN & 0xff, // AS_PATH
		0x40, 3, 4, 127, 0, 0, 32, // NEXT_HOP
	}
	for n := range 2 * updates {
		body := append([]byte{0, 0, 0, byte(len(attributes))}, attributes...)
		for i := range inOne {
			at := (n%updates)*inOne + i
			body = append(body, 24, byte(20+at>>16), byte(at>>8), byte(at))
		}
		if _, err := p.conn().Write(message(2, body...)); err != nil {
			s.fail("%v", err)
		}
	}
}

// besideFlapping opens a session up to ten times a second, and drops it without a word as soon as it is up, fifty times.
func (s *scene) besideFlapping() {
	const flaps = 50
	p := s.besides(nil, func(id *desired.Identity) { id.Passive = true })
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(beside32)}}
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	began := time.Now()
	for n := 0; n < flaps; {
		if time.Since(began) > patience {
			s.fail("it was up %d times in %v, want %d", n, time.Since(began), flaps)
		}
		<-pace.C
		conn, err := dialer.DialContext(s.t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", passivePort))
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
