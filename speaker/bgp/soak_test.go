//go:build soak

package bgp

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/pulse/socket"
)

// How the soak is run, by "make soak-bfd".
var (
	soakSpeaker  = flag.String("soak.speaker", "../../bin/speaker", "the program of which pulse is a part")
	soakTime     = flag.Duration("soak.time", 10*time.Minute, "how long")
	soakInterval = flag.Duration("soak.interval", 50*time.Millisecond, "between two packets")
	soakLoad     = flag.Int("soak.load", 4, "processes that do nothing but to use a processor")
)

const soakMultiplier = 3

// soak is one pulse, as it runs on nodes, beside a router and others that want the processor.
type soak struct {
	t      *testing.T
	pulse  *socket.Client
	router *router
	lost   func() []netip.Prefix
}

// startSoak starts pulse, the session of BFD and the load, once BGP is up. The router is
// another machine as a rule, and what keeps it from sending in time is not ours to test: its
// daemons are before ordinary processes, too.
func startSoak(t *testing.T, r *router) *soak {
	t.Helper()
	r.hurry()
	s := &soak{t: t, router: r, lost: r.watchKernel()}
	path := filepath.Join(t.TempDir(), "pulse.sock")
	s.start(*soakSpeaker, "pulse", "--node-name=a", "--socket="+path, "--metrics-bind-address=", "--log-level=warn")
	s.pulse = socket.NewClient(path, quiet(t))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.pulse.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	session := desired.BFD{Peer: router4, Local: node4, Transmit: *soakInterval, Receive: *soakInterval, Multiplier: soakMultiplier}
	if _, err := s.pulse.Apply(ctx, api.Table{Node: "a", BFD: map[string]desired.BFD{"tor": session}}); err != nil && !errors.Is(err, socket.ErrAway) {
		t.Fatal(err)
	}
	for range *soakLoad {
		s.start("sh", "-c", "while :; do :; done")
	}
	r.waitFor("BFD is up with the interval that is wanted", func() bool {
		b := s.status()
		return b.State == bfd.Up && b.Detection == soakMultiplier**soakInterval
	})
	return s
}

// start runs a program until the test ends.
func (s *soak) start(name string, args ...string) {
	s.t.Helper()
	c := exec.Command(name, args...)
	c.Stderr = s.t.Output()
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
}

func (s *soak) status() bfd.Status {
	state, _ := s.pulse.State()
	return state.BFD["tor"]
}

// hold waits, and tells of every alarm on either side; downs is how often the router says
// that the session was down.
func (s *soak) hold(downs func() int) {
	s.t.Helper()
	here, there := s.status().Failures, downs()
	load := func() string {
		text, _ := os.ReadFile("/proc/loadavg")
		return strings.TrimSpace(string(text))
	}
	began := time.Now()
	s.t.Logf("%v × %d for %v, load %s", *soakInterval, soakMultiplier, *soakTime, load())
	for time.Since(began) < *soakTime {
		time.Sleep(min(time.Second, *soakTime-time.Since(began)))
		if now := s.status().Failures; now != here {
			s.t.Errorf("after %v: %d false alarms here, load %s", time.Since(began).Round(time.Second), now-here, load())
			here = now
		}
		if now := downs(); now != there {
			s.t.Errorf("after %v: false alarm in the router (%d, before %d), load %s", time.Since(began).Round(time.Second), now, there, load())
			there = now
		}
	}
	if gone := s.lost(); len(gone) > 0 {
		s.t.Errorf("the router lost %v", gone)
	}
	s.t.Logf("after %v: load %s", time.Since(began).Round(time.Second), load())
}

func TestSoakBFDWithFRR(t *testing.T) {
	r := startRouter(t, neighborLines(node4, nodeASN))
	r.withBFD(timers{*soakInterval, soakMultiplier})
	speaker := newSpeaker(t)
	mustApply(t, speaker, map[string]desired.Session{"tor": {Identity: toRouter(node4), Routes: prefixes(vip)}})
	r.waitForKernel(vip, node4.String())
	r.configure(fmt.Sprintf("neighbor %v bfd profile fast", node4))
	s := startSoak(t, r)
	r.waitFor("FRR is up", func() bool { return r.bfd(node4).Status == "up" })
	s.hold(func() int { return r.bfdDowns(node4) })
}

func TestSoakBFDWithBIRD(t *testing.T) {
	b := startBIRDWith(t, timers{*soakInterval, soakMultiplier}, node4, nodeASN, "bfd on;", "direct;")
	speaker := newSpeaker(t)
	mustApply(t, speaker, map[string]desired.Session{"tor": {Identity: toRouter(node4), Routes: prefixes(vip)}})
	b.waitForKernel(vip, node4.String())
	s := startSoak(t, b.router)
	up := func() bool { state, _ := b.bfd(node4); return state == "Up" }
	b.waitFor("BIRD is up", up)
	_, since := b.bfd(node4)
	downs := 0
	s.hold(func() int { // BIRD says only since when it is up, and not to the millisecond
		if _, now := b.bfd(node4); now.Sub(since).Abs() > time.Second {
			since = now
			downs++
		}
		return downs
	})
}

// bfdDowns is how often FRR's session with us was down, -1 if it does not say.
func (r *router) bfdDowns(of netip.Addr) int {
	var all []struct {
		Peer  string `json:"peer"`
		Downs *int   `json:"session-down"`
	}
	_ = json.Unmarshal([]byte(r.vty("bfdd", "show bfd peers counters json")), &all)
	for _, p := range all {
		if p.Peer == of.String() && p.Downs != nil {
			return *p.Downs
		}
	}
	return -1
}

// startBIRDWith runs BIRD with these timers of BFD, a neighbor that may dial, and lines of its protocol.
func startBIRDWith(t testing.TB, bfd timers, neighbor netip.Addr, asn uint32, lines ...string) *bird {
	t.Helper()
	b := newBIRD(t)
	local := router4
	if neighbor.Is6() {
		local = router6
	}
	b.begin(bfd, fmt.Sprintf(`
protocol bgp node {
	local %[1]v as %[2]d;
	neighbor %[3]v as %[4]d;
	passive on;
	error wait time 1, 2;
	%[5]s
	ipv4 { import all; export none; };
	ipv6 { import all; export none; };
}
`, local, routerASN, neighbor, asn, strings.Join(lines, "\n\t")))
	return b
}
