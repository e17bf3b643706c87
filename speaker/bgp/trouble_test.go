package bgp

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/speaker/desired"
)

func TestDeadPeersHoldUpNobody(t *testing.T) {
	if runsApart(t) {
		return
	}
	s := newSpeaker(t)
	// Whoever waited for a peer would wait for a minute, far longer than a busy machine
	// takes to do without.
	s.openPatience = time.Minute
	const most = 20 * time.Second
	good := startPeer(t, "127.0.0.11:0", nil)
	silent := startPeer(t, "127.0.0.12:0", func(p *peer) { p.silent = true })
	refusing := startPeer(t, "127.0.0.13:0", nil)
	_ = refusing.listener.Close()
	wrongASN := startPeer(t, "127.0.0.14:0", func(p *peer) { p.asn = 64777 })
	garbled := startPeer(t, "127.0.0.15:0", func(p *peer) {
		p.greeting = append(bytes.Repeat([]byte{0xff}, 16), 0, 5, 1) // a message shorter than its header
	})
	unknown := startPeer(t, "127.0.0.16:0", func(p *peer) {
		refusal, err := packet.NewBGPNotificationMessage(packet.BGP_ERROR_OPEN_MESSAGE_ERROR, packet.BGP_ERROR_SUB_BAD_PEER_AS, nil).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		p.greeting = refusal
	})

	want := map[string]desired.Session{}
	for name, p := range map[string]*peer{"good": good, "silent": silent, "refusing": refusing, "wrong-asn": wrongASN, "garbled": garbled, "unknown": unknown} {
		id := p.identity()
		id.HoldTime = time.Minute
		want[name] = desired.Session{Identity: id, Routes: prefixes(vip)}
	}
	broken := want["good"]
	broken.Identity.RouterID = netip.Addr{}
	want["broken"] = broken

	start := time.Now()
	err := s.Apply(t.Context(), want)
	if took := time.Since(start); took > most {
		t.Errorf("Apply took %v", took)
	}
	var problem *PeerError
	if !errors.As(err, &problem) || problem.Peer != "broken" || !strings.Contains(err.Error(), "router ID") {
		t.Errorf("error %v, want one about the router ID of broken", err)
	}
	if have := s.inPlace(); len(have) != 6 {
		t.Errorf("reports %v", have)
	}
	good.waitFor(t, vip)
	for name, words := range map[string]string{
		"refusing":  "connection refused",
		"wrong-asn": "AS number 64777 in place of 64999",
		"garbled":   "what 127.0.0.15 sent was refused",
		"unknown":   "compare the AS numbers",
	} {
		waitFor(t, name+" is explained", func() bool {
			return strings.Contains(s.States()[name].LastError, words)
		})
		t.Logf("%s: %s", name, s.States()[name].LastError)
	}
	waitFor(t, "the silent peer is asked to open a session", func() bool {
		return s.States()["silent"].Phase == OpenSent
	})
	// Removing all of them is as quick.
	start = time.Now()
	mustApply(t, s, map[string]desired.Session{"good": want["good"]})
	if took := time.Since(start); took > most {
		t.Errorf("removing took %v", took)
	}
	if established, up := good.sessions(); established != 1 || !up {
		t.Errorf("the good session came up %d times, up %v", established, up)
	}
}

func TestPeerThatNeverOpensIsLeftAndTriedAgain(t *testing.T) {
	if runsApart(t) {
		return
	}
	s := newSpeaker(t)
	s.openPatience = time.Second
	silent := startPeer(t, "127.0.0.12:0", func(p *peer) { p.silent = true })
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: silent.identity(), Routes: prefixes(vip)}})
	waitFor(t, "it is said that the peer does not open", func() bool {
		return strings.Contains(s.States()["tor"].LastError, "does not open a BGP session")
	})
	waitFor(t, "a second attempt", func() bool { return s.States()["tor"].Messages.Sent.Open >= 2 })
}

func TestSessionComesBackFastAfterADrop(t *testing.T) {
	if runsApart(t) {
		return
	}
	s := newSpeaker(t)
	p := startPeer(t, "127.0.0.11:0", nil)
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: p.identity(), Routes: prefixes(vip)}})
	p.waitFor(t, vip)
	// GoBGP by itself idles for five seconds before it dials. The machine does other
	// things too: one of some times has to be quicker.
	const idle = 5 * time.Second
	fastest := time.Hour
	for n := 0; n < 2 || n < 6 && fastest > idle; n++ {
		start := time.Now()
		was, _ := p.sessions()
		p.drop()
		waitFor(t, "a new session", func() bool { n, up := p.sessions(); return n > was && up })
		fastest = min(fastest, time.Since(start))
		p.waitFor(t, vip)
		t.Logf("route back %v after the drop", time.Since(start))
	}
	if fastest > idle {
		t.Errorf("a new session after %v", fastest)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, open := range p.opened {
		gr := capability[*packet.CapGracefulRestart](open)
		if gr == nil || gr.Time != uint16(restartTime.Seconds()) || len(gr.Tuples) != 2 || gr.Tuples[0].Flags&0x80 == 0 || gr.Tuples[1].Flags&0x80 == 0 {
			t.Errorf("graceful restart capability %+v, want forwarding kept in both families", gr)
		}
		if last := n == len(p.opened)-1; gr != nil && (n == 0 && gr.Flags&0x08 == 0 || last && gr.Flags&0x08 != 0) {
			t.Errorf("OPEN %d says %+v: a process has restarted until its first session is up, and no longer", n, gr)
		}
		if gr != nil && gr.Flags&0x04 != 0 {
			t.Error("the N bit (RFC 8538) would keep routes of a dead node after its hold time")
		}
	}
}
