package bgp

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// bird is a real BIRD 2 in the place of FRR.
type bird struct {
	*router
	socket string
}

// startBIRD runs BIRD with a neighbor that may dial and lines of its protocol.
func startBIRD(t testing.TB, neighbor netip.Addr, asn uint32, lines ...string) *bird {
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
	local := router4
	if neighbor.Is6() {
		local = router6
	}
	config := filepath.Join(b.dir, "bird.conf")
	err := os.WriteFile(config, fmt.Appendf(nil, `
log stderr all;
router id 10.98.0.1;
protocol device { }
protocol direct { ipv4; ipv6; }
protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; }
protocol kernel { ipv6 { import none; export where source = RTS_BGP; }; }
protocol bfd {
	interface "*" { interval 50 ms; multiplier 3; };
	multihop { interval 50 ms; multiplier 3; };
}
protocol bgp node {
	local %v as %d;
	neighbor %v as %d;
	passive on;
	error wait time 1, 2;
	%s
	ipv4 { import all; export none; };
	ipv6 { import all; export none; };
}
`, local, routerASN, neighbor, asn, strings.Join(lines, "\n\t")), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command("ip", "netns", "exec", b.ns, "/usr/sbin/bird", "-f", "-c", config, "-s", b.socket, "-P", filepath.Join(b.dir, "pid"))
	daemon.Stderr = t.Output()
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	b.daemon["bird"] = daemon
	t.Cleanup(func() { b.kill("bird") })
	b.waitForAnswer("show status", "Daemon is up and running")
	return b
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

// bfd is BIRD's line on its session with us.
func (b *bird) bfd(of netip.Addr) string {
	for line := range strings.Lines(b.ask("show bfd sessions")) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == of.String() {
			return line
		}
	}
	return ""
}

// TestBIRDAndBFD: as with FRR.
func TestBIRDAndBFD(t *testing.T) {
	for _, c := range []struct {
		name     string
		source   netip.Addr
		multiHop bool
	}{{"IPv4", node4, false}, {"IPv6", node6, false}, {"IPv4 multihop", node4, true}, {"IPv6 multihop", node6, true}} {
		t.Run(c.name, func(t *testing.T) {
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
					return strings.Contains(b.bfd(c.source), " Up ") && s.State == bfd.Up &&
						s.Detection == bfdMultiplier*bfdInterval && b.kernel(vip) != nil
				})
			}
			up()
			since := b.bfd(c.source)
			sessions = restarted(t, sessions, stop, all)
			up()
			if now := b.bfd(c.source); now != since {
				t.Errorf("after a restart BIRD says %s, and before %s", now, since)
			}
			noticed(t, b.router, speaker, sessions)
			b.mend()
			up()
			sessions.Set(nil)
			b.waitFor("AdminDown is told", func() bool { return strings.Contains(b.bfd(c.source), " Down ") })
		})
	}
}
