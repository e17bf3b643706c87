package bgp

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// TestPassivePeersRefuseWhoIsNotMeant: strangers are closed before a word, a router without the
// right password does not even connect, one that is too far away is not heard, and a port that
// another daemon has is told.
func TestPassivePeersRefuseWhoIsNotMeant(t *testing.T) {
	if runsApart(t) {
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

// TestARouterThatDialsSoonHasAllBeforeTheEndOfRIB: a router that kept the routes of an earlier process
// connects while there are more than are handed over at once.
func TestARouterThatDialsSoonHasAllBeforeTheEndOfRIB(t *testing.T) {
	if runsApart(t) {
		return
	}
	s, p := newListener(t), startPeer(t, "127.0.0.11:0", nil)
	s.burst = 10
	id := p.identity()
	id.Passive = true
	want := desired.Session{Identity: id, Routes: manyRoutes(5000)}
	mustApply(t, s, map[string]desired.Session{"tor": want})
	for range 2 { // of which it gives the first one up
		from := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(id.PeerAddress, 0))}
		conn, err := from.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", passivePort))
		if err != nil {
			t.Fatal(err)
		}
		p.take(conn)
	}
	waitFor(t, "End-of-RIB", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.endOfRIB >= 2 })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.whole != len(want.Routes) {
		t.Errorf("the router had %d routes at the End-of-RIB, want all %d", p.whole, len(want.Routes))
	}
}

// TestConnectionsThatCannotBeTakenAreTriedAgainAtLeisure has the process have as many files as it may, while
// somebody connects.
func TestConnectionsThatCannotBeTakenAreTriedAgainAtLeisure(t *testing.T) {
	if runsApart(t) {
		return
	}
	if !netlab.IsIsolated() {
		t.Skip("needs a process of its own, whose files nobody else opens")
	}
	var log buffer
	s := newSpeaker(t, slog.NewTextHandler(&log, nil))
	socket, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	go s.accept(&listener{}, socket)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{Control: func(string, string, syscall.RawConn) error { // it has its own file, and has not connected yet
		return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max})
	}}
	start, used := time.Now(), processorTime(t)
	conn, err := dialer.Dial("tcp4", socket.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it is said that connections cannot be taken", func() bool { return strings.Contains(log.text(), "too many open files") })
	took := time.Since(start)
	if used = processorTime(t) - used; used > took/2 {
		t.Errorf("to take no connection for %v took %v of a processor", took, used)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(conn); len(said) > 0 || err != nil { // a stranger's is closed when it is taken
		t.Errorf("read %q, %v", said, err)
	}
	_ = conn.Close()
}

// processorTime is what this process has used of processors.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
