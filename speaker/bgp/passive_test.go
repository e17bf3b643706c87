package bgp

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
)

// passivePort is where routers dial in tests: another than 179, as beside another daemon.
const passivePort = 1790

// dialingLines configure a neighbor that the router dials.
func dialingLines(addr netip.Addr, asn uint32, more ...string) string {
	return strings.Replace(neighborLines(addr, asn, append(more, fmt.Sprintf("port %d", passivePort), "timers connect 1")...),
		fmt.Sprintf(" neighbor %v passive\n", addr), "", 1)
}

func newListener(t *testing.T) *Speaker {
	s := newSpeaker(t)
	s.ListenOn(passivePort)
	return s
}

// listens tells whether anybody takes connections to an address of the node.
func listens(t *testing.T, at netip.Addr) bool {
	t.Helper()
	conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(at, passivePort).String(), time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// TestFRRDialsAPassivePeer: the router opens the session, over either family, with a password
// and TTL security or without, and everything is as where the node dials.
func TestFRRDialsAPassivePeer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source netip.Addr
		asn    uint32
		more   []string
		change func(*desired.Identity)
	}{
		"IPv4":       {source: node4, asn: nodeASN},
		"IPv6, iBGP": {source: node6, asn: routerASN},
		"IPv4, a password and TTL security": {
			source: node4, asn: nodeASN, more: []string{"password secret", "ttl-security hops 1"},
			change: func(id *desired.Identity) { id.Password, id.TTLSecurity = "secret", true },
		},
		"IPv6, a password": {
			source: node6, asn: nodeASN, more: []string{"password secret"},
			change: func(id *desired.Identity) { id.Password, id.PeerASN = "secret", 0 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if netlab.Apart(t) {
				return
			}
			r := startRouter(t, dialingLines(c.source, c.asn, c.more...))
			s := newListener(t)
			id := toRouter(c.source)
			id.MyASN, id.Passive = c.asn, true
			if c.change != nil {
				c.change(&id)
			}
			want := map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip, vip6)}}
			mustApply(t, s, want)
			r.waitForKernel(vip, "10.98.0.2")
			r.waitForKernel(vip6, "fd98::2")
			state := s.States()["tor"]
			if state.LocalAddress != c.source || !state.GracefulRestart || state.Advertised != 2 || state.PeerASN != routerASN {
				t.Errorf("state %+v", state)
			}
			delete(want["tor"].Routes, netip.MustParsePrefix(vip))
			want["tor"].Routes[netip.MustParsePrefix(vip2)] = desired.RouteAttrs{}
			mustApply(t, s, want)
			r.waitForKernel(vip2, "10.98.0.2")
			r.waitForKernel(vip)

			r.vty("clear bgp *") // the router ends the session and dials again
			waitFor(t, "a second session", func() bool { return s.States()["tor"].Established == 2 })
			r.waitForKernel(vip2, "10.98.0.2")

			mustApply(t, s, nil)
			r.waitForKernel(vip2)
			if listens(t, node4) || listens(t, node6) {
				t.Error("it listens although no peer is passive")
			}
		})
	}
}

// TestFRRKeepsRoutesOfAPassivePeer: a speaker that ends as in an upgrade leaves the routes to
// graceful restart, though it is the router that has to come back.
func TestFRRKeepsRoutesOfAPassivePeer(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, dialingLines(node4, nodeASN))
	id := toRouter(node4)
	id.Passive = true
	want := map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}}
	first := newListener(t)
	mustApply(t, first, want)
	r.waitForKernel(vip, "10.98.0.2")
	lost := r.watchKernel()
	if err := first.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	r.waitFor("the route is kept as a stale one", func() bool { p := r.paths(vip); return len(p) == 1 && p[0].Stale })
	mustApply(t, newListener(t), want)
	r.waitFor("the route is no longer stale", func() bool { p := r.paths(vip); return len(p) == 1 && !p[0].Stale })
	if gone := lost(); len(gone) != 0 {
		t.Errorf("the router lost %v", gone)
	}
}

// TestPassivePeersRefuseWhoIsNotMeant: strangers are closed before a word, a router without the
// right password does not even connect, one that is too far away is not heard, and a port that
// another daemon has is told.
func TestPassivePeersRefuseWhoIsNotMeant(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, dialingLines(node4, nodeASN, "password wrong"))
	s := newListener(t)
	id := toRouter(node4)
	id.Passive, id.Password = true, "right"
	want := map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}}
	mustApply(t, s, want)
	waitFor(t, "it waits", func() bool { return strings.Contains(s.States()["tor"].LastError, "waiting for 10.98.0.1") })

	stranger, err := net.Dial("tcp", netip.AddrPortFrom(node4, passivePort).String())
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(stranger); len(said) > 0 {
		t.Errorf("a stranger is told %q, %v", said, err)
	}
	_ = stranger.Close()

	r.waitFor("the kernel drops what has another password", func() bool { return dropped(t, "TCPMD5Failure") > 0 })
	if state := s.States()["tor"]; state.Established != 0 {
		t.Errorf("a session with another password: %+v", state)
	}
	r.configure(fmt.Sprintf("no neighbor %v password", node4))
	r.waitFor("the kernel drops what has no password", func() bool { return dropped(t, "TCPMD5NotFound") > 0 })
	if state := s.States()["tor"]; state.Established != 0 {
		t.Errorf("a session without any password: %+v", state)
	}
	r.configure(fmt.Sprintf("neighbor %v password right", node4))
	r.waitForKernel(vip, "10.98.0.2")
	mustApply(t, s, nil)

	other, err := net.Listen("tcp4", fmt.Sprintf(":%d", passivePort))
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, want)
	waitFor(t, "it is told that the port is taken", func() bool { return strings.Contains(s.States()["tor"].LastError, "speaker.bgpListenPort") })
	_ = other.Close()
	mustApply(t, s, want)
	r.waitForKernel(vip, "10.98.0.2")
}

// TestPassivePeersRefuseWhoIsFarAway: a router that sends TTLs of 1 may be anywhere.
func TestPassivePeersRefuseWhoIsFarAway(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, dialingLines(node4, nodeASN))
	s := newListener(t)
	s.openPatience = 4 * time.Second
	id := toRouter(node4)
	id.Passive, id.TTLSecurity = true, true
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	waitFor(t, "the TTL is named", func() bool { return strings.Contains(s.States()["tor"].LastError, "TTL of 255") })
	r.configure(fmt.Sprintf("neighbor %v ttl-security hops 1", node4))
	r.waitForKernel(vip, "10.98.0.2")
}

// dropped is a count that the kernel keeps of segments of TCP.
func dropped(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/net/netstat")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if at := slices.Index(names, name); at >= 0 && len(fields) > at {
			n, err := strconv.Atoi(fields[at])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		names = fields
	}
	t.Fatalf("the kernel does not count %s", name)
	return 0
}
