package bgp

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// bird is a real BIRD 2 in the place of FRR.
type bird struct {
	*router
	socket string
}

// newBIRD makes its namespace and the cable to it.
func newBIRD(t testing.TB) *bird {
	t.Helper()
	if !netlab.IsIsolated() {
		t.Skip("needs CAP_SYS_ADMIN and CAP_NET_ADMIN for network namespaces")
	}
	for _, binary := range []string{"/usr/sbin/bird", "/usr/sbin/birdc", "/usr/sbin/ip"} {
		if _, err := os.Stat(binary); err != nil {
			t.Skipf("needs %s (Debian packages bird2 and iproute2)", binary)
		}
	}
	b := &bird{router: plugIn(t, t.TempDir())}
	b.socket, b.proto = filepath.Join(b.dir, "bird.ctl"), "bird"
	return b
}

// startBIRD runs BIRD with a neighbor that may dial and lines of its protocol.
func startBIRD(t testing.TB, neighbor netip.Addr, asn uint32, lines ...string) *bird {
	t.Helper()
	return startBIRDWith(t, bfdInterval, bfdMultiplier, neighbor, asn, lines...)
}

// startBIRDWith does so with other timers of BFD.
func startBIRDWith(t testing.TB, interval time.Duration, multiplier int, neighbor netip.Addr, asn uint32, lines ...string) *bird {
	t.Helper()
	b := newBIRD(t)
	local := router4
	if neighbor.Is6() {
		local = router6
	}
	b.begin(interval, multiplier, fmt.Sprintf(`
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

// begin runs BIRD with these timers of BFD, and these protocols beside those that it always has.
func (b *bird) begin(interval time.Duration, multiplier int, protocols string) {
	b.t.Helper()
	config := filepath.Join(b.dir, "bird.conf")
	err := os.WriteFile(config, fmt.Appendf(nil, `
log stderr all;
timeformat protocol iso long ms;
router id 10.98.0.1;
protocol device { }
protocol direct { ipv4; ipv6; }
protocol kernel { merge paths on; ipv4 { import none; export where source = RTS_BGP; }; }
protocol kernel { merge paths on; ipv6 { import none; export where source = RTS_BGP; }; }
protocol bfd {
	interface "*" { interval %[1]d ms; multiplier %[2]d; };
	multihop { interval %[1]d ms; multiplier %[2]d; };
}
%[3]s`, interval.Milliseconds(), multiplier, protocols), 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	command := []string{"/usr/sbin/bird", "-f", "-c", config, "-s", b.socket, "-P", filepath.Join(b.dir, "pid")}
	if b.ns != "" {
		command = append([]string{"ip", "netns", "exec", b.ns}, command...)
	}
	daemon := exec.Command(command[0], command[1:]...)
	daemon.Stderr = b.t.Output()
	if err := daemon.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.daemon["bird"] = daemon
	b.t.Cleanup(func() { b.kill("bird") })
	b.waitForAnswer("show status", "Daemon is up and running")
}

// ask asks BIRD as its operator does; without an answer, "".
func (b *bird) ask(command string) string {
	out, err := exec.Command("/usr/sbin/birdc", "-r", "-s", b.socket, command).Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// waitForAnswer asks until all parts are in the answer.
func (b *bird) waitForAnswer(command string, parts ...string) {
	b.t.Helper()
	said := ""
	defer func() {
		if b.t.Failed() {
			b.t.Logf("birdc %s says:\n%s", command, said)
		}
	}()
	b.waitFor(fmt.Sprintf("birdc %s says %q", command, parts), func() bool {
		said = b.ask(command)
		for _, part := range parts {
			if !strings.Contains(said, part) {
				return false
			}
		}
		return true
	})
}

// bfd is what BIRD says of its session with us: the state, and since when. BIRD counts the
// latter back from now, by a clock of its own, so that it differs a little each time.
func (b *bird) bfd(of netip.Addr) (state string, since time.Time) {
	b.t.Helper()
	for line := range strings.Lines(b.ask("show bfd sessions")) {
		fields := strings.Fields(line) // address, interface, state, date, time, ...
		if len(fields) < 5 || fields[0] != of.String() {
			continue
		}
		since, err := time.Parse("2006-01-02 15:04:05.000", fields[3]+" "+fields[4])
		if err != nil {
			b.t.Fatalf("birdc says %q: %v", line, err)
		}
		return fields[2], since
	}
	return "", time.Time{}
}

// TestBIRDAndBFD: as with FRR.
func TestBIRDAndBFD(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		source   netip.Addr
		multiHop bool
	}{{"IPv4", node4, false}, {"IPv6", node6, false}, {"IPv4 multihop", node4, true}, {"IPv6 multihop", node6, true}} {
		t.Run(c.name, func(t *testing.T) {
			if netlab.Apart(t) {
				return
			}
			hops := "direct;"
			if c.multiHop {
				hops = "multihop 2;"
			}
			b := startBIRD(t, c.source, nodeASN, "bfd on;", hops)
			speaker := newSpeaker(t)
			sessions, stop := runBFD(t)
			id := toRouter(c.source)
			id.EBGPMultiHop = c.multiHop
			mustApply(t, speaker, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
			want := bfdTo(id, c.multiHop)
			if c.multiHop {
				want.MinTTL = 63 // BIRD sends multihop packets with 64
			}
			all := map[string]desired.BFD{"tor": want}
			sessions.Set(all)
			up := func() {
				t.Helper()
				b.waitFor("both sides are Up and the route is there", func() bool {
					s := sessions.Status()["tor"]
					state, _ := b.bfd(c.source)
					return state == "Up" && s.State == bfd.Up && s.Detection == bfdDetection && b.kernel(vip) != nil
				})
			}
			up()
			_, before := b.bfd(c.source)
			sessions = restarted(t, sessions, stop, all)
			up()
			if _, after := b.bfd(c.source); after.Sub(before).Abs() > bfdDetection/2 {
				t.Errorf("after a restart BIRD says Up since %v, and before %v", after, before)
			}
			noticed(t, b.router, speaker, sessions)
			b.mend()
			up()
			sessions.Set(nil)
			b.waitFor("AdminDown is told", func() bool { state, _ := b.bfd(c.source); return state == "Down" })
		})
	}
}
