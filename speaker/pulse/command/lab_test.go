package command_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/command"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/socket"
)

// asPulse in the environment makes the test binary be pulse: the tests start
// it in network namespaces, and signal and kill it as Kubernetes does.
const asPulse = "FAIRLEAD_TEST_AS_PULSE"

func TestMain(m *testing.M) {
	if os.Getenv(asPulse) == "" {
		os.Exit(m.Run())
	}
	go func() { // it never outlives the test that holds the other end
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := command.RunSinceLong(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// plan is who has which addresses: the nodes have the hosts 1, 2 and so on of the
// LAN, the client is 99. The address that moves is vip. In an apartLab the nodes have another
// network for themselves, and are the same hosts there.
type plan struct {
	vip         netip.Addr
	lan, within netip.Prefix
}

var (
	vip  = netip.MustParseAddr("192.0.2.200")
	ipv4 = plan{vip, netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24")}
	ipv6 = plan{netip.MustParseAddr("2001:db8::1:200"), netip.MustParsePrefix("2001:db8::/64"), netip.MustParsePrefix("2001:db8:1::/64")}
)

// host is an address of the LAN.
func (p plan) host(n int) netip.Addr { return hostOf(p.lan, n) }

// inner is one of the network of the nodes.
func (p plan) inner(n int) netip.Addr { return hostOf(p.within, n) }

func hostOf(network netip.Prefix, n int) netip.Addr {
	a := network.Addr().AsSlice()
	a[len(a)-1] = byte(n)
	host, _ := netip.AddrFromSlice(a)
	return host
}

func (p plan) attach(s *linkstest.Segment, h *linkstest.Host, n int) (plug string) {
	return s.Attach(h, "eth0", netip.PrefixFrom(p.host(n), p.lan.Bits()).String())
}

// soon is more than anything here takes that does happen.
const soon = time.Minute

// node is a host with pulse and the side of the agent that talks to it.
type node struct {
	*linkstest.Host
	t      *testing.T
	name   string
	plug   string // its cable to the LAN
	port   string // its interface there
	socket string
	flags  []string // of pulse, besides those that each has
	group  string   // control group of version 1 that pulse is started in; empty: ours
	// program is what is started as pulse, instead of the test itself; reads is told the lines that
	// it logs. Both may be zero.
	program string
	reads   func(line string)
	// contain returns how to start a command in a container; nil: it is not in one.
	contain func(*exec.Cmd) *exec.Cmd

	process *exec.Cmd
	stdin   io.Closer
	exited  chan struct{}

	client    *socket.Client
	stopAgent func()
}

// lab is a LAN with nodes and a client.
type lab struct {
	plan
	segment *linkstest.Segment
	nodes   []*node
	first   int // address of a node
	client  *linkstest.Host
}

func newLab(t *testing.T, nodes int, flags ...string) *lab {
	t.Helper()
	return newLabOf(t, ipv4, nodes, flags...)
}

// newLabOf makes a lab whose hosts have addresses of one family only.
func newLabOf(t *testing.T, p plan, nodes int, flags ...string) *lab {
	t.Helper()
	l := &lab{plan: p, segment: linkstest.NewSegment(t), client: linkstest.NewHost(t), first: 1}
	p.attach(l.segment, l.client, 99)
	l.populate(t, nodes, flags...)
	return l
}

// populate attaches nodes to the LAN.
func (l *lab) populate(t *testing.T, nodes int, flags ...string) {
	t.Helper()
	for i := range nodes {
		n := &node{Host: linkstest.NewHost(t), t: t, name: fmt.Sprintf("node-%d", i+1), port: "eth0", flags: flags}
		n.plug = l.attach(l.segment, n.Host, l.first+i)
		// The address is on the loopback, as if forwarding to a local pod: the
		// kernel takes its packets, but leaves ARP to pulse. IPv6 does so anyway.
		n.Sysctl("ipv4/conf/all/arp_ignore", "1")
		n.Sysctl("ipv4/conf/all/arp_announce", "2")
		n.AddAddress("lo", netip.PrefixFrom(l.vip, l.vip.BitLen()).String())
		n.socket = filepath.Join(t.TempDir(), "run", "pulse.sock")
		l.nodes = append(l.nodes, n)
	}
}

// table is what the agent of the node says: all nodes serve the address, the
// first is its best candidate.
func (l *lab) table(n *node) api.Table {
	t := api.Table{
		Node: n.name, Key: view.Secret("the key of the lab, 32 bytes long"), Serving: true,
		Peers: map[string]hello.Peer{}, Claims: map[netip.Addr]desired.Candidacy{},
	}
	var names []string
	for i, peer := range l.nodes {
		names = append(names, peer.name)
		a := l.host(l.first + i)
		if peer == n {
			t.NodeAddrs = []netip.Addr{a}
			continue
		}
		t.Peers[peer.name] = hello.Peer{Addrs: []netip.Addr{a}, Ready: true}
	}
	t.Claims[l.vip] = desired.Candidacy{Candidates: names}
	return t
}

// start starts pulse, agent and table on each node, and waits until the first
// node owns the address and all know each other.
func (l *lab) start(t *testing.T) {
	t.Helper()
	l.startWith(t, l.table)
}

// startWith does so with the tables of a lab that is built otherwise.
func (l *lab) startWith(t *testing.T, table func(n *node) api.Table) {
	t.Helper()
	for _, n := range l.nodes {
		n.startPulse()
		n.startAgent()
		n.say(table(n))
	}
	l.settled(t)
}

// restart starts pulse anew on each node. A pulse remembers for minutes that hellos and frames were late once, and waits longer.
func (l *lab) restart(t *testing.T) {
	t.Helper()
	for _, n := range l.nodes {
		n.kill()
		n.startPulse()
	}
	l.settled(t)
}

// settled waits until the first node owns the address and all know each other.
func (l *lab) settled(t *testing.T) {
	t.Helper()
	for _, n := range l.nodes {
		n.until("settled", func(s api.State) bool { return s.Settled && len(s.Alive) == len(l.nodes) })
		n.hears(t, "nodes_unheard 0$") // a node counts as alive also while only Kubernetes says so
	}
	l.nodes[0].until("owner", owns)
}

// hears waits until the node has counted so many hellos, or nodes that it did not hear.
func (n *node) hears(t *testing.T, count string) {
	t.Helper()
	line := regexp.MustCompile("(?m)^fairlead_pulse_" + count)
	for deadline := time.Now().Add(soon); !line.MatchString(get(t, n, "/metrics")); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: no %q in\n%s", n.name, line, get(t, n, "/metrics"))
		}
	}
}

// owns tells whether the address of the lab, which has only one, is owned.
func owns(s api.State) bool { return len(s.Owned) > 0 }

// startPulse starts the process and passes its log on to the test's.
func (n *node) startPulse() {
	n.t.Helper()
	self, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	if n.program != "" {
		self = n.program
	}
	// These tests lose one node again and again, and have it back at once.
	args := append([]string{"--damping=0s", "--node-name=" + n.name, "--socket=" + n.socket, "--log-level=debug"}, n.flags...)
	n.process = exec.CommandContext(n.t.Context(), self, args...)
	n.process.Env = append(os.Environ(), asPulse+"=1")
	if n.contain != nil {
		n.process = n.contain(n.process)
	}
	stdin, err := n.process.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	stderr, err := n.process.StderrPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	n.stdin, n.exited = stdin, make(chan struct{})
	start := func() error {
		if n.group != "" { // the thread goes there, which ends afterwards, and what it starts
			if err := os.WriteFile(n.group+"/tasks", []byte(strconv.Itoa(syscall.Gettid())), 0); err != nil {
				return err
			}
		}
		return n.process.Start()
	}
	if err := n.Do(start); err != nil {
		n.t.Fatal(err)
	}
	process, exited := n.process, n.exited
	go func() {
		defer close(exited)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			_, _ = fmt.Fprintf(n.t.Output(), "%s: %s\n", n.name, lines.Text())
			if n.reads != nil {
				n.reads(lines.Text())
			}
		}
		_ = process.Wait()
	}()
	n.t.Cleanup(n.kill)
}

// kill ends pulse without a word.
func (n *node) kill() {
	_ = n.process.Process.Kill() // an error means that it has ended already
	_ = n.stdin.Close()          // pulse in a container outlives the runtime
	<-n.exited
}

// signal sends pulse a signal.
func (n *node) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.process.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

// terminate asks pulse to end, and tells how long it took.
func (n *node) terminate() time.Duration {
	n.t.Helper()
	begun := time.Now()
	if err := n.process.Process.Signal(syscall.SIGTERM); err != nil {
		n.t.Fatal(err)
	}
	select {
	case <-n.exited:
	case <-time.After(soon):
		n.t.Fatalf("%s: pulse does not end", n.name)
	}
	if code := n.process.ProcessState.ExitCode(); code != 0 {
		n.t.Fatalf("%s: pulse ended with code %d", n.name, code)
	}
	return time.Since(begun)
}

// startAgent connects a client as the agent does.
func (n *node) startAgent() {
	n.client = socket.NewClient(n.socket, testlog.New(n.t).With("agent", n.name))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = n.client.Run(ctx) // always nil
	}()
	n.stopAgent = sync.OnceFunc(func() { cancel(); <-ended })
	n.t.Cleanup(n.stopAgent)
}

// say hands over a table, which may have to wait for pulse, and returns what is true then.
func (n *node) say(t api.Table) api.State {
	n.t.Helper()
	deadline := time.After(soon)
	for {
		state, err := n.client.Apply(n.t.Context(), t)
		if err == nil {
			return state
		}
		select {
		case <-n.client.Changed():
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			n.t.Fatalf("%s: %v", n.name, err)
		}
	}
}

// until waits for a state of which the condition is true.
func (n *node) until(what string, is func(api.State) bool) time.Duration {
	n.t.Helper()
	begun, deadline := time.Now(), time.After(soon)
	for {
		s, connected := n.client.State()
		if connected && is(s) {
			return time.Since(begun)
		}
		select {
		case <-n.client.Changed():
		case <-deadline:
			n.t.Fatalf("%s: not %s; connected %t, state %+v", n.name, what, connected, s)
		}
	}
}

// mac is the MAC of the node on the LAN.
func (n *node) mac() net.HardwareAddr { return n.MAC(n.port) }

// resolves waits until the client's kernel, asked anew, has the address at the
// node; it asks as long as it takes.
func (l *lab) resolves(t *testing.T, n *node) {
	t.Helper()
	l.ask()
	l.neighbour(t, n)
}

// ask makes the client's kernel forget the address and ask for it.
func (l *lab) ask() {
	if l.client.Neighbour("eth0", l.vip) != nil {
		l.client.Forget("eth0", l.vip)
	}
	l.client.Ask(l.vip)
}

// neighbour waits until the client's kernel has the address at the node.
func (l *lab) neighbour(t *testing.T, n *node) time.Duration {
	t.Helper()
	begun := time.Now()
	for asked := begun; ; {
		mac := l.client.Neighbour("eth0", l.vip)
		switch {
		case mac.String() == n.mac().String():
			return time.Since(begun)
		case mac == nil && time.Since(asked) > 3*time.Second: // after which the kernel gives up
			l.client.Ask(l.vip)
			asked = time.Now()
		case time.Since(begun) > soon:
			t.Fatalf("the client has the address at %q, want %s, the MAC of %s", mac, n.mac(), n.name)
		}
		time.Sleep(time.Millisecond)
	}
}

// traffic is a stream of datagrams from the client to the address and back.
type traffic struct {
	stop func()
	mu   sync.Mutex
	// arrivals of replies, and the node that replied
	at   []time.Time
	from []string
}

const every = 2 * time.Millisecond

// traffic begins a stream, after an echo server was started on each node.
func (l *lab) traffic(t *testing.T) *traffic {
	t.Helper()
	const port = 7007
	for _, n := range l.nodes {
		server, err := n.ListenPacket("udp", netip.AddrPortFrom(l.vip, port).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
		go func() {
			buffer := make([]byte, 64)
			for {
				_, from, err := server.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = server.WriteTo([]byte(n.name), from) // a cable may be out
			}
		}()
	}
	conn, err := l.client.Dial("udp", netip.AddrPortFrom(l.vip, port).String())
	if err != nil {
		t.Fatal(err)
	}
	s := &traffic{}
	var ended sync.WaitGroup
	done := make(chan struct{})
	s.stop = sync.OnceFunc(func() { close(done); _ = conn.Close(); ended.Wait() })
	t.Cleanup(s.stop)
	ended.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				_, _ = conn.Write([]byte("?")) // errors show as a gap
			}
		}
	})
	ended.Go(func() {
		buffer := make([]byte, 64)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				select {
				case <-done:
					return
				default:
					continue // no route to host, while nobody answers
				}
			}
			s.mu.Lock()
			s.at, s.from = append(s.at, time.Now()), append(s.from, string(buffer[:n]))
			s.mu.Unlock()
		}
	})
	return s
}

// served waits until so many further replies came from the node.
func (s *traffic) served(t *testing.T, n *node, replies int) {
	t.Helper()
	s.mu.Lock()
	seen := len(s.from)
	s.mu.Unlock()
	for deadline := time.Now().Add(soon); ; time.Sleep(every) {
		s.mu.Lock()
		got := 0
		for _, from := range s.from[seen:] {
			if from == n.name {
				got++
			}
		}
		s.mu.Unlock()
		if got >= replies {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d replies from %s, want %d", got, n.name, replies)
		}
	}
}

// anew forgets the replies of before.
func (s *traffic) anew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.from = nil, nil
}

// longestGap is the longest time in which the client got no reply.
func (s *traffic) longestGap() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var longest time.Duration
	for i := 1; i < len(s.at); i++ {
		longest = max(longest, s.at[i].Sub(s.at[i-1]))
	}
	return longest
}

// nodes that replied, sorted.
func (s *traffic) nodes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]bool{}
	for _, from := range s.from {
		seen[from] = true
	}
	return slices.Sorted(maps.Keys(seen))
}
