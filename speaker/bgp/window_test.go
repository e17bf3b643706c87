package bgp

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/desired"
)

// TestARouterWithAClosedWindowKeepsItsSession has a router of another AS, which sends a TTL of 1 as most do,
// read nothing for some seconds while there is more for it than both kernels take in. Its acknowledgements and
// its open window have to arrive all the while: no packet of a router is dropped for its TTL unless the user
// asks for that (GTSM, RFC 5082).
func TestARouterWithAClosedWindowKeepsItsSession(t *testing.T) {
	if runsApart(t) {
		return
	}
	const router = "198.51.100.7"
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	address, err := netlink.ParseAddr(router + "/32")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrReplace(lo, address); err != nil {
		t.Fatal(err)
	}
	reads := make(chan struct{})
	s := newSpeaker(t)
	p := startPeer(t, router+":0", func(p *peer) { p.hops, p.busy = 1, reads })
	routes := bulkyRoutes()
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: p.identity(), Routes: routes}})
	waitFor(t, "a session", func() bool { return s.told(t, "tor").Phase == Established })
	s.mu.Lock()
	session := s.sessions["tor"]
	s.mu.Unlock()
	session.mu.Lock()
	conn := session.relay.router
	session.mu.Unlock()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var least int
		var failed error
		if err := raw.Control(func(fd uintptr) { least, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MINTTL) }); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		if least != 0 {
			t.Fatalf("packets of the router with a TTL below %d are dropped", least)
		}
	}
	close(reads)
	waitFor(t, "the router has all routes", func() bool { return len(p.routes()) == len(routes) })
	if established, up := p.sessions(); established != 1 || !up {
		t.Errorf("the session came up %d times, up %v: %v", established, up, s.States()["tor"].Overcome)
	}
}
