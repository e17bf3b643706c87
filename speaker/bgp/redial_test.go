package bgp

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestConnectTimeIsBetweenAttempts counts the connections that are tried to a port where nobody
// listens: after the first, none sooner than connectTime says, nor much later.
func TestConnectTimeIsBetweenAttempts(t *testing.T) {
	if runsApart(t) {
		return
	}
	if !netlab.IsIsolated() {
		t.Skip("needs a network of its own, in which nobody else connects")
	}
	s, gone := newSpeaker(t), startPeer(t, "127.0.0.11:0", nil)
	_ = gone.listener.Close()
	id := gone.identity()
	id.ConnectTime = 4 * time.Second
	before := activeOpens(t)
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	var attempts []time.Time
	for n := range 3 {
		waitFor(t, "another attempt", func() bool { return activeOpens(t) > before+n })
		attempts = append(attempts, time.Now())
	}
	// What is seen late makes the next interval shorter.
	const late = time.Second
	for n, at := range attempts[1:] {
		if pause := at.Sub(attempts[n]); pause < id.ConnectTime-late || pause > id.ConnectTime+redialTime+late {
			t.Errorf("attempt %d came %v after the one before, want %v to %v", n+2, pause, id.ConnectTime, id.ConnectTime+redialTime)
		}
	}
}

// TestConnectTimeIsOfNoSession: a change of it leaves a session as it is, and one that waits does so no longer.
func TestConnectTimeIsOfNoSession(t *testing.T) {
	if runsApart(t) {
		return
	}
	s, p := newSpeaker(t), startPeer(t, "127.0.0.11:0", nil)
	id := p.identity()
	id.ConnectTime = 4 * time.Second
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	p.waitFor(t, vip)
	id.ConnectTime = 18 * time.Hour
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip, vip2)}})
	p.waitFor(t, vip, vip2)
	if established, up := p.sessions(); established != 1 || !up {
		t.Errorf("the session came up %d times, up %v", established, up)
	}

	gone := startPeer(t, "127.0.0.12:0", nil)
	_ = gone.listener.Close()
	id.PeerAddress, id.PeerPort = gone.addr().Addr(), gone.addr().Port()
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	waitFor(t, "nobody is there", func() bool { return strings.Contains(s.States()["tor"].LastError, "connection refused") })
	back := startPeer(t, gone.addr().String(), nil)
	id.ConnectTime = 5 * time.Second
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
	back.waitFor(t, vip)
}

// activeOpens is how many TCP connections were tried from this network.
func activeOpens(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case fields[0] == "Tcp:" && names == nil:
			names = fields
		case fields[0] == "Tcp:":
			n, err := strconv.Atoi(fields[slices.Index(names, "ActiveOpens")])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the kernel does not count TCP connections")
	return 0
}
