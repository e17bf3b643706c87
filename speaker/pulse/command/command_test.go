package command_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/command"
)

// detection is longer than a silent node is waited for by default, unless hellos are late.
const detection = 500 * time.Millisecond

// oneOf has something that must be quick tried some times: the machine does other things,
// too, so that one of them has to be good.
func oneOf(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for range 5 {
		if err = try(); err == nil {
			return
		}
		t.Logf("once more, since the machine may have been busy: %v", err)
	}
	t.Error(err)
}

// inBoth runs a test in a cluster of IPv4 addresses only, and in one of IPv6 only.
func inBoth(t *testing.T, test func(t *testing.T, p plan)) {
	t.Helper()
	for name, p := range map[string]plan{"IPv4": ipv4, "IPv6": ipv6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

func TestTheNextCandidateTakesOverFromADeadNode(t *testing.T) {
	inBoth(t, takeOverFromADeadNode)
}

func takeOverFromADeadNode(t *testing.T, p plan) {
	l := newLabOf(t, p, 2)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	l.resolves(t, first)
	s := l.traffic(t)
	oneOf(t, func() error {
		s.anew()
		s.served(t, first, 20)

		l.segment.Pull(first.plug)
		s.served(t, second, 20)
		gap := s.longestGap()
		t.Logf("a pulled cable: the client got no reply for %v", gap.Round(time.Millisecond))
		second.until("owner", owns)

		s.anew()
		l.segment.Plug(first.plug)
		s.served(t, first, 20)
		t.Logf("plugged in again: the client got no reply for %v", s.longestGap().Round(time.Millisecond))
		second.until("without the address", func(s api.State) bool { return !owns(s) })
		l.neighbour(t, first)
		if gap > 2*time.Second {
			return fmt.Errorf("no reply for %v; the detection time is %v", gap, detection)
		}
		return nil
	})
}

func TestAKilledPulseIsTakenOver(t *testing.T) { inBoth(t, killedPulse) }

func killedPulse(t *testing.T, p plan) {
	l := newLabOf(t, p, 2)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	l.resolves(t, first)
	s := l.traffic(t)
	oneOf(t, func() error {
		s.anew()
		s.served(t, first, 20)
		first.kill()
		took := l.neighbour(t, second)
		s.served(t, second, 20)
		gap := s.longestGap()
		t.Logf("a killed pulse: the neighbour entry moved after %v, the client got no reply for %v",
			took.Round(time.Millisecond), gap.Round(time.Millisecond))

		first.startPulse()
		first.until("owner", owns)
		l.neighbour(t, first)
		if took > 2*time.Second {
			return fmt.Errorf("the neighbour entry moved after %v", took)
		}
		if gap > detection {
			return fmt.Errorf("no reply for %v, although the kernel of the first node still served", gap)
		}
		return nil
	})
}

// A node that comes back takes its addresses over from the one that answers for
// them meanwhile, which stops when the other has begun.
func TestANodeThatComesBackLeavesNoGap(t *testing.T) { inBoth(t, comeBack) }

func comeBack(t *testing.T, p plan) {
	l := newLabOf(t, p, 2)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	l.resolves(t, first)
	s, asking := l.traffic(t), l.asking(t)
	oneOf(t, func() error {
		first.kill()
		second.until("owner", owns)
		l.resolves(t, second)
		s.anew()
		asking.anew()
		s.served(t, second, 20)
		first.startPulse()
		first.until("owner", owns)
		second.until("without the address", func(s api.State) bool { return !owns(s) })
		s.served(t, first, 20)
		l.neighbour(t, first)
		gap := asking.longestGap(t)
		t.Logf("nobody answered for %v at most, the client got no reply for %v",
			gap.Round(time.Millisecond), s.longestGap().Round(time.Millisecond))
		if longest := max(gap, s.longestGap()); longest > detection/2 {
			return fmt.Errorf("the address was nobody's for %v", longest)
		}
		return nil
	})
}

// patient has pulse take nobody for dead on a busy machine; patientDetection is the time
// after which it does. A restart takes this long twice, since the new pulse listens before it
// answers, and has to be over within the ten seconds for which the node counts as alive.
var patient = []string{"--hello-interval=500ms", "--hello-multiplier=6"}

const patientDetection = 3 * time.Second

func TestAnswersGoOnWithoutTheAgent(t *testing.T) {
	t.Parallel()
	inBothAtOnce(t, withoutTheAgent)
}

func withoutTheAgent(t *testing.T, p plan) {
	l := newLabOf(t, p, 2, patient...)
	l.start(t)
	first := l.nodes[0]
	before, _ := first.client.State()
	first.stopAgent()
	l.resolves(t, first)
	time.Sleep(patientDetection * 11 / 10) // and it goes on for longer than the mesh would wait
	l.resolves(t, first)

	// A new agent learns what is true before it says anything, and pulse does
	// not begin anew because of it.
	first.startAgent()
	first.until("owner", owns)
	first.say(l.table(first))
	if after, _ := first.client.State(); !after.Owned[p.vip].Since.Equal(before.Owned[p.vip].Since) {
		t.Errorf("owned since %v, was %v before the agent restarted", after.Owned[p.vip].Since, before.Owned[p.vip].Since)
	}
}

func TestNothingIsAnsweredWithoutATable(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.nodes[0]
	n.startPulse()
	n.startAgent()
	n.until("connected", func(api.State) bool { return true })
	l.ask()
	time.Sleep(detection)
	if mac := l.client.Neighbour("eth0", vip); mac != nil {
		t.Fatalf("answered by %s", mac)
	}
	n.say(l.table(n))
	n.until("owner", owns)
	l.resolves(t, n)

	// An address that is claimed no more is answered for no more, and Apply
	// comes back only when that is so.
	table := l.table(n)
	table.Claims = nil
	if state := n.say(table); owns(state) {
		t.Fatalf("state %+v", state)
	}
	l.ask()
	time.Sleep(detection)
	if mac := l.client.Neighbour("eth0", vip); mac != nil {
		t.Fatalf("answered by %s after the claim was gone", mac)
	}
}

// The hellos pass on eth0; the address is served on eth1, whose cable is pulled.
func TestALiveNodeHandsOverWhatItCannotAnswer(t *testing.T) {
	t.Parallel()
	l, served := newLab(t, 2), linkstest.NewSegment(t)
	plugs := map[*node]string{}
	for _, n := range l.nodes {
		plugs[n] = served.Attach(n.Host, "eth1")
	}
	claimed := func(n *node) api.Table {
		table := l.table(n)
		table.Claims[vip] = desired.Candidacy{Candidates: table.Claims[vip].Candidates, Interfaces: []string{"eth1"}}
		return table
	}
	for _, n := range l.nodes {
		n.startPulse()
		n.startAgent()
		n.say(claimed(n))
	}
	first, second := l.nodes[0], l.nodes[1]
	first.until("owner", owns)
	for _, n := range l.nodes {
		n.until("settled", func(s api.State) bool { return s.Settled && len(s.Alive) == 2 })
	}
	served.Pull(plugs[first])
	both := func(s api.State) bool { return len(s.Alive) == 2 }
	took := second.until("owner", func(s api.State) bool { return owns(s) && both(s) })
	// The kernel tells of a lost carrier after a second if it told of another
	// link just before; otherwise this takes some 20 ms.
	t.Logf("the other node took over after %v", took.Round(time.Millisecond))
	first.until("unable", func(s api.State) bool {
		return !owns(s) && slices.Equal(s.Unable, []netip.Addr{vip}) && both(s)
	})
	served.Plug(plugs[first])
	first.until("owner again", func(s api.State) bool {
		return slices.Equal(s.Owned[vip].Interfaces, []string{"eth1"}) && len(s.Unable) == 0
	})
	second.until("without the address", func(s api.State) bool { return !owns(s) })
}

// Whoever comes with nonsense is refused, and the agent is served after that.
func TestNonsenseOnTheSocketHarmsNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.start(t)
	n := l.nodes[0]
	for name, said := range map[string]string{
		"another version":  "FL\x00\x63\x00\x00\x00\x02{}",
		"another protocol": "GET / HTTP/1.1\r\n\r\n",
		"an endless body":  "FL\x00\x01\xff\xff\xff\xff",
	} {
		conn := n.intrude(said)
		_ = conn.SetReadDeadline(time.Now().Add(soon))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: pulse does not hang up", name)
		}
		_ = conn.Close()
	}
	n.until("owner", owns)
	wrong := l.table(n)
	wrong.Node = "node-of-another-name"
	if _, err := n.client.Apply(t.Context(), wrong); err == nil {
		t.Error("the table of another node was taken")
	}
	n.say(l.table(n))
	n.until("owner", owns)
	l.resolves(t, n)
	if info, err := os.Stat(n.socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, error %v; want mode 0600", info.Mode(), err)
	}
}

// intrude says something on the socket in place of the agent. If the agent comes back before that,
// pulse hangs up on this connection, so that another one is made.
func (n *node) intrude(said string) net.Conn {
	n.t.Helper()
	for deadline := time.Now().Add(soon); ; {
		conn, err := n.Dial("unix", n.socket)
		if err != nil {
			n.t.Fatal(err)
		}
		_, err = io.WriteString(conn, said)
		if err == nil {
			return conn
		}
		if _ = conn.Close(); !errors.Is(err, syscall.EPIPE) || time.Now().After(deadline) {
			n.t.Fatal(err)
		}
	}
}

// maxRSS is what pulse may use, in KiB, with a handful of addresses. The test's
// own code is part of it here.
const maxRSS = 48 << 10

func TestMetricsAndHealth(t *testing.T) { inBoth(t, metricsAndHealth) }

func metricsAndHealth(t *testing.T, p plan) {
	l := newLabOf(t, p, 2, patient...)
	l.start(t)
	n := l.nodes[0]
	protocol := map[plan]string{ipv4: "arp", ipv6: "ndp"}[p]
	announcements := map[plan]string{ipv4: "arp_gratuitous_total", ipv6: "ndp_unsolicited_total"}[p]
	// Until it has to ask: an announcement may be quicker.
	answered := regexp.MustCompile(`(?m)^fairlead_pulse_` + protocol + `_answers_total [1-9]`)
	for deadline := time.Now().Add(soon); !answered.MatchString(get(t, n, "/metrics")); l.resolves(t, n) {
		if time.Now().After(deadline) {
			t.Fatal("no answer was counted")
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := get(t, n, path); got != "ok\n" {
			t.Errorf("%s said %q", path, got)
		}
	}
	metrics := get(t, n, "/metrics")
	for _, want := range []string{
		`fairlead_pulse_owned_addresses 1`, `fairlead_pulse_unable_addresses 0`, `fairlead_pulse_settled 1`,
		`fairlead_pulse_nodes_heard 1`, `fairlead_pulse_node_deaths_total 0`,
		`fairlead_pulse_arp_parse_errors_total 0`, `fairlead_pulse_ndp_parse_errors_total 0`,
		`fairlead_pulse_hellos_sent_total [1-9]`, `fairlead_pulse_hellos_received_total [1-9]`,
		`fairlead_pulse_detection_seconds\{of="self"\} [0-9]`, `fairlead_pulse_detection_seconds\{of="others"\} [0-9]`,
		`fairlead_pulse_hello_lateness_seconds [0-9]`,
		`fairlead_pulse_` + announcements + ` [1-9]`, `fairlead_pulse_hellos_rejected_total\{reason="mac"\} 0`,
	} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(metrics) {
			t.Errorf("no %s in\n%s", want, metrics)
		}
	}
	oneOf(t, func() error {
		rss := n.resident()
		t.Logf("pulse has an RSS of %.1f MiB", float64(rss)/1024)
		if rss <= maxRSS {
			return nil
		}
		n.kill() // when garbage is collected is a matter of luck, too
		n.startPulse()
		n.until("owner", owns)
		return fmt.Errorf("pulse has an RSS of %d KiB, at most %d are allowed", rss, maxRSS)
	})
}

// resident is the RSS of pulse in KiB.
func (n *node) resident() int {
	n.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.process.Process.Pid))
	if err != nil {
		n.t.Fatal(err)
	}
	rss, err := strconv.Atoi(string(regexp.MustCompile(`VmRSS:\s*(\d+) kB`).FindSubmatch(status)[1]))
	if err != nil {
		n.t.Fatal(err)
	}
	return rss
}

// get fetches a page of the node's pulse, which serves it as soon as it can.
func get(t *testing.T, n *node, path string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return n.Dial("tcp", "127.0.0.1:7476") },
	}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://pulse"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	for deadline := time.Now().Add(soon); err != nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		response, err = client.Do(request)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Pulse runs before ordinary processes on all of its threads, unless it is told not to; also
// in a control group that may not run anything in real time, as that of a container.
func TestEveryThreadIsRealtime(t *testing.T) {
	asked, granted := uint32(unix.SCHED_RR), true
	if err := exec.CommandContext(t.Context(), "chrt", "--rr", "1", "true").Run(); err != nil {
		t.Logf("here nobody may run in real time: %v", err)
		granted = false
	}
	if !granted {
		asked = unix.SCHED_DEADLINE
		if err := runBeforeOthers(); err != nil && !errors.Is(err, unix.EBUSY) {
			t.Logf("here nobody may run before others: %v", err)
			asked = unix.SCHED_NORMAL // pulse goes on all the same
		}
	}
	cases := map[string]struct {
		flag, group string
		policy      uint32
	}{
		"asked for":     {"--realtime=true", "", asked},
		"not asked for": {"--realtime=false", "", unix.SCHED_NORMAL},
	}
	const groups = "/sys/fs/cgroup/cpu"
	if _, err := os.Stat(groups + "/cpu.rt_runtime_us"); err == nil && granted {
		group := fmt.Sprintf("%s/fairlead-test-%d", groups, os.Getpid())
		if err := os.Mkdir(group, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(group) })
		c := cases["asked for"]
		c.group, c.policy = group, unix.SCHED_DEADLINE
		cases["in a container"] = c
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 1, c.flag)
			n := l.nodes[0]
			n.group = c.group
			l.start(t)
			// What the runtime starts meanwhile is new until the next look, a second later.
			var err error
			for began := time.Now(); time.Since(began) < soon; time.Sleep(50 * time.Millisecond) {
				if err = n.runsBy(c.policy); err == nil {
					return
				}
				if c.policy == unix.SCHED_DEADLINE && errors.Is(runBeforeOthers(), unix.EBUSY) {
					t.Logf("others are promised what this one lacks, as those of a lab: %v", err)
					return
				}
			}
			t.Error(err)
		})
	}
}

// runBeforeOthers returns the error with which the kernel refuses to run one more thread as pulse has it run its own.
func runBeforeOthers() error {
	refused := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the function
		refused <- unix.SchedSetAttr(0, &unix.SchedAttr{
			Size: unix.SizeofSchedAttr, Policy: unix.SCHED_DEADLINE, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
			Runtime: uint64(200 * time.Microsecond), Deadline: uint64(5 * time.Millisecond), Period: uint64(5 * time.Millisecond),
		}, 0)
	}()
	return <-refused
}

// runsBy returns an error if the kernel schedules a thread of pulse by another policy.
func (n *node) runsBy(policy uint32) error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", n.process.Process.Pid))
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return err
		}
		if got, err := unix.SchedGetAttr(id, 0); err == nil && got.Policy != policy {
			return fmt.Errorf("one of %d threads runs with policy %d, want %d", len(threads), got.Policy, policy)
		}
	}
	return nil
}

func TestFlagsThatAreRefused(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	for args, want := range map[string]string{
		"":                                       "NODE_NAME",
		"--node-name=a extra":                    `"extra"`,
		"--node-name=a --hello-port=0":           "--hello-port=0",
		"--node-name=a --hello-port=65536":       "--hello-port=65536",
		"--node-name=a --hello-interval=0s":      "interval",
		"--node-name=a --hello-multiplier=1":     "multiplier",
		"--node-name=a --damping=-1s":            "--damping=-1s",
		"--node-name=a --log-level=loud":         "log-level",
		"--node-name=a --socket=/proc/no/such/s": "/proc/no/such/s",
		"--no-such-flag":                         "no-such-flag",
	} {
		var stderr bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		err := command.Run(ctx, append(strings.Fields(args), "--metrics-bind-address="), &stderr)
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %s", args, err, want)
		}
	}
}

// Pulse is small because it has no Kubernetes client; a dependency that slips
// in would make every restart slower, too.
func TestPulseDoesNotDependOnKubernetes(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "fairlead.dev/fairlead/speaker/pulse/...").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(string(out), "fairlead.dev/fairlead/speaker/pulse/arp") {
		t.Fatalf("the list lacks pulse itself:\n%s", out)
	}
	for dependency := range strings.Lines(string(out)) {
		if strings.HasPrefix(dependency, "k8s.io/") || strings.HasPrefix(dependency, "sigs.k8s.io/") {
			t.Errorf("speaker/pulse depends on %s", dependency)
		}
	}
}
