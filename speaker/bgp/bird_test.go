package bgp

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// bird is a real BIRD 2 in the place of FRR.
type bird struct {
	*router
	socket string
	id     netip.Addr
}

// newBIRD makes its namespace and the cable to it.
func newBIRD(t testing.TB) *bird {
	t.Helper()
	if !netlab.IsIsolated() {
		t.Skip("needs CAP_SYS_ADMIN and CAP_NET_ADMIN for network namespaces")
	}
	for _, binary := range []string{"/usr/sbin/bird", "/usr/sbin/ip"} {
		if _, err := os.Stat(binary); err != nil {
			t.Skipf("needs %s (Debian packages bird2 and iproute2)", binary)
		}
	}
	b := &bird{router: plugIn(t, t.TempDir()), id: router4}
	b.socket, b.protocol = filepath.Join(b.dir, "bird.ctl"), unix.RTPROT_BIRD
	return b
}

// configure writes what BIRD reads at its start, and when it is told to: these timers of BFD, and these protocols beside
// those that it always has.
func (b *bird) configure(bfd timers, protocols string) (file string) {
	b.t.Helper()
	config := filepath.Join(b.dir, "bird.conf")
	err := os.WriteFile(config, fmt.Appendf(nil, `
log stderr all;
timeformat protocol iso long ms;
router id %[4]v;
graceful restart wait 10; # for neighbours that are never up
protocol device { }
protocol direct { ipv4; ipv6; interface "-lo", "*"; }
protocol kernel { graceful restart on; merge paths on; ipv4 { import none; export where source = RTS_BGP && proto != "fairlead"; }; }
protocol kernel { graceful restart on; merge paths on; ipv6 { import none; export where source = RTS_BGP && proto != "fairlead"; }; }
protocol bfd {
	interface "*" { interval %[1]d ms; multiplier %[2]d; };
	multihop { interval %[1]d ms; multiplier %[2]d; };
}
%[3]s`, bfd.every.Milliseconds(), bfd.multiplier, protocols, b.id), 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	return config
}

// begin runs BIRD so configured.
func (b *bird) begin(bfd timers, protocols string, more ...string) {
	b.t.Helper()
	b.run(b.configure(bfd, protocols), more...)
}

// run runs BIRD with a file of its configuration.
func (b *bird) run(config string, more ...string) {
	b.t.Helper()
	command := []string{"/usr/sbin/bird", "-f", "-c", config, "-s", b.socket, "-P", filepath.Join(b.dir, "pid")}
	if b.ns != "" {
		command = append([]string{"ip", "netns", "exec", b.ns}, command...)
	}
	command = append(command, more...)
	daemon := exec.Command(command[0], command[1:]...)
	daemon.Stderr = b.t.Output()
	if err := daemon.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.daemon["bird"] = daemon
	b.t.Cleanup(func() { b.kill("bird") })
	b.waitForAnswer("show status", "Daemon is up and running")
}

// ask asks BIRD as birdc does, without birdc's process: a line begins with a number, or with a blank in its place, and the last one of
// an answer has a blank behind the number. BIRD greets first. Without an answer it is "".
func (b *bird) ask(command string) string {
	conn, err := net.DialTimeout("unix", b.socket, patience)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	var said strings.Builder
	greeted := false
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		line := lines.Text()
		text, goesOn := strings.CutPrefix(line, " ")
		if !goesOn && len(line) > 4 {
			goesOn, text = line[4] == '-', line[5:]
		}
		said.WriteString(text + "\n")
		switch {
		case goesOn:
		case greeted:
			return said.String()
		default:
			greeted = true
			if _, err := conn.Write([]byte(command + "\n")); err != nil {
				return ""
			}
		}
	}
	return ""
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
	fields := b.bfdFields(of)
	if fields == nil {
		return "", time.Time{}
	}
	since, err := time.Parse("2006-01-02 15:04:05.000", fields[3]+" "+fields[4])
	if err != nil {
		b.t.Fatalf("birdc says %q: %v", fields, err)
	}
	return fields[2], since
}

// detects is after what time without a packet of ours BIRD takes us for dead.
func (b *bird) detects(of netip.Addr) time.Duration {
	b.t.Helper()
	fields := b.bfdFields(of)
	if fields == nil {
		return 0
	}
	after, err := time.ParseDuration(fields[6] + "s")
	if err != nil {
		b.t.Fatalf("birdc says %q: %v", fields, err)
	}
	return after
}

// bfdFields are those of the line that BIRD has for the session: address, interface, state, date, time, interval, timeout.
func (b *bird) bfdFields(of netip.Addr) []string {
	for line := range strings.Lines(b.ask("show bfd sessions")) {
		if fields := strings.Fields(line); len(fields) == 7 && fields[0] == of.String() {
			return fields
		}
	}
	return nil
}
