package pulse

import (
	"context"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/hello/hellotest"
	"fairlead.dev/fairlead/speaker/pulse/socket"
)

const (
	simInterval   = 50 * time.Millisecond
	simMultiplier = 3
	simDetection  = simInterval * simMultiplier
	simDelay      = 200 * time.Microsecond
	simStep       = 2 * time.Millisecond
	idleStep      = 10 * simStep
)

// The times of package owner that the tests wait for.
const (
	questions       = 4
	questionEvery   = 25 * time.Millisecond
	askAgain        = time.Second
	absentQuestions = 10
	absentEvery     = 100 * time.Millisecond
	listenFor       = 300 * time.Millisecond
	retryProbes     = 5 * time.Second
	sayWithin       = time.Second
	awayFor         = time.Second
	probeEvery      = 25 * time.Millisecond
)

// does tells whether a server answers for an address.
func does(s *Server, a netip.Addr) bool {
	_, is := s.State().Owned[a]
	return is
}

// cluster is nodes with a real mesh and a real server each, in a bubble, and the addresses
// that they answer for. Only network and kernel are not real.
type cluster struct {
	t      *testing.T
	lan    *hellotest.LAN
	second *second // nil: the addresses are on the network of the hellos
	nodes  []*simNode
	tasks  sync.WaitGroup
	vips   []netip.Addr

	wires    sync.Mutex      // guards what follows
	cut      map[[2]int]bool // ways that hellos do not take, by sender and receiver
	dark     map[[2]int]bool // ways that frames do not take, hellos among them
	muffled  map[[2]int]bool // ways that hellos alone take
	loss     float64
	gateway  bool               // there is one
	occupied map[netip.Addr]int // the node of which an interface has the address
	metallb  bool               // it is no interface, but another speaker

	noPreempt bool // of all addresses

	// Since when more than one node answered that can reach another, by address; and
	// the longest of these times, and of those in which nobody did who could.
	double, nobody               map[netip.Addr]time.Time
	longestDouble, longestNobody time.Duration
	owners                       map[netip.Addr][]int
	moves                        int // how often the nodes that answer for an address changed
}

type simNode struct {
	index   int
	name    string
	addr    netip.Addr
	answers atomic.Pointer[ears] // nil while it does not run; the segment reads it at any time
	says    func(api.Table)      // hands over a table
	stop    func()               // nil while it does not run
	goodbye func(time.Duration)  // says that it is back within that time
	state   func() api.State
	kernel  atomic.Bool // it answers, also while the node does not run
	hands   inKernel    // over what moves here
	cable   chan struct{}
	pulled  bool         // its cable; guarded by wires, as
	ups     uint64       // how often it was plugged in again
	stalled atomic.Int64 // until when its server does not run, as Unix nanoseconds
}

// newCluster starts nodes and waits until they know each other.
func newCluster(t *testing.T, size, addresses int, random func() float64) *cluster {
	return newClusterOf(t, size, addresses, false, random)
}

// newClusterOf starts nodes of which none takes back an address if that is said.
func newClusterOf(t *testing.T, size, addresses int, noPreempt bool, random func() float64) *cluster {
	c := &cluster{vips: make([]netip.Addr, 0, addresses), noPreempt: noPreempt}
	for i := range addresses {
		vip := netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)})
		if addresses > 100 { // more than a subnet has room for
			vip = netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
		}
		c.vips = append(c.vips, vip)
	}
	c.begin(t, size, random)
	return c
}

// begin starts the nodes, and waits until they know each other.
func (c *cluster) begin(t *testing.T, size int, random func() float64) {
	*c = cluster{
		t: t, vips: c.vips, second: c.second, noPreempt: c.noPreempt, lan: hellotest.NewLAN(simDelay), cut: map[[2]int]bool{}, dark: map[[2]int]bool{}, muffled: map[[2]int]bool{},
		double: map[netip.Addr]time.Time{}, nobody: map[netip.Addr]time.Time{}, owners: map[netip.Addr][]int{},
	}
	for i := range size {
		c.nodes = append(c.nodes, &simNode{index: i, name: fmt.Sprintf("node-%d", i), addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)}), cable: make(chan struct{}, 1)})
	}
	c.lan.Lose(func(from, to netip.Addr) bool {
		c.wires.Lock()
		defer c.wires.Unlock()
		way := [2]int{int(from.As4()[3]) - 1, int(to.As4()[3]) - 1}
		return c.cut[way] || c.second == nil && c.dark[way] || c.loss > 0 && random() < c.loss
	})
	for i := range c.nodes {
		c.start(i)
	}
	c.run(time.Second)
	c.expectOne("after the start")
	c.longestDouble, c.longestNobody, c.moves = 0, 0, 0
}

// start begins a node.
func (c *cluster) start(i int) {
	n := c.nodes[i]
	booted := !n.kernel.Load()
	listening := newEars(c, i)
	n.answers.Store(listening)
	n.kernel.Store(true)
	log := slog.New(slog.DiscardHandler)
	mesh, err := hello.New(hello.Config{
		Node: n.name, Port: 7475, Interval: simInterval, Multiplier: simMultiplier, Log: log,
		Listen: func(context.Context, uint16) (hello.Transport, error) { return c.lan.Open(n.addr), nil },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	server := NewServer(Config{
		Node: n.name, Mesh: mesh, Links: cable{c, i},
		ARP: listening, NDP: listening.six, BFD: path{&around{}}, Adjacency: lone{}, LinkCheck: c.linkCheck(ctx, i, mesh), Handover: &n.hands, Damping: simDamping, Booted: booted, Log: log,
	})
	c.tasks.Go(func() { _ = mesh.Run(ctx) })
	c.tasks.Go(func() { server.loop(ctx) })
	n.state, n.says = server.State, func(t api.Table) {
		if t.Elsewhere == nil {
			t.Digests = digestsOf(t.Claims)
		}
		server.received <- socket.Event{Table: &t, Number: 1}
	}
	n.says(c.table(i))
	n.goodbye = mesh.Goodbye
	n.stop = func() {
		c.lan.Remove(n.addr)
		n.answers.Store(nil)
		n.kernel.Store(false)
		cancel()
		n.stop = nil
	}
}

// kill ends pulse on a node of which the kernel goes on.
func (c *cluster) kill(i int) {
	c.nodes[i].stop()
	c.nodes[i].kernel.Store(true)
}

func (c *cluster) table(i int) api.Table {
	t := api.Table{
		Node: c.nodes[i].name, NodeAddrs: []netip.Addr{c.nodes[i].addr}, Key: "the key of the simulation, 32 byte",
		Serving: true, Peers: map[string]hello.Peer{}, Claims: map[netip.Addr]desired.Candidacy{},
	}
	var names []string
	for j, n := range c.nodes {
		names = append(names, n.name)
		if j != i {
			t.Peers[n.name] = hello.Peer{Addrs: []netip.Addr{n.addr}, Ready: true}
		}
	}
	for _, a := range c.vips {
		t.Claims[a] = desired.Candidacy{Candidates: election.Rank(a, names), NoPreempt: c.noPreempt}
	}
	return t
}

// digestsOf sums up candidates.
func digestsOf(claims map[netip.Addr]desired.Candidacy) (d desired.Digests) {
	for a, claim := range claims {
		d[desired.Bucket(a)] ^= crc32.ChecksumIEEE(fmt.Append(nil, a, claim.Candidates))
	}
	return d
}

// close ends all nodes.
func (c *cluster) close() {
	for _, n := range c.nodes {
		if n.stop != nil {
			n.stop()
		}
	}
	c.tasks.Wait()
}

// run lets time pass, and looks at everything every other millisecond.
func (c *cluster) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(simStep)
		c.look()
	}
}

// idle lets time pass in which nothing is to happen, and looks a tenth as often: looking is most of the work.
func (c *cluster) idle(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(idleStep)
		c.look()
	}
}

func (c *cluster) look() {
	now := time.Now()
	for _, a := range c.vips {
		owners := c.answering(a)
		if !slices.Equal(owners, c.owners[a]) {
			c.owners[a] = owners
			c.moves++
		}
		c.longestDouble = max(c.longestDouble, lasts(c.double, a, now, c.meet(owners)))
		c.longestNobody = max(c.longestNobody, lasts(c.nobody, a, now, len(owners) == 0 && c.runs()))
	}
}

// runs tells whether any node does.
func (c *cluster) runs() bool {
	return slices.ContainsFunc(c.nodes, func(n *simNode) bool { return n.stop != nil })
}

// lasts is for how long something has been the case.
func lasts(since map[netip.Addr]time.Time, a netip.Addr, now time.Time, is bool) time.Duration {
	if !is {
		delete(since, a)
		return 0
	}
	if since[a].IsZero() {
		since[a] = now
	}
	return now.Sub(since[a])
}

// answering are the nodes that answer for an address.
func (c *cluster) answering(a netip.Addr) (owners []int) {
	for i, n := range c.nodes {
		if to := n.answers.Load(); to != nil && to.does(a) {
			owners = append(owners, i)
		}
	}
	return owners
}

// meet tells whether any two of the nodes can reach each other, be it in one direction, or know a third one that
// exchanges hellos with both. Who hears nobody is left out: it may be its own ears.
func (c *cluster) meet(nodes []int) bool {
	for _, i := range nodes {
		for _, j := range nodes {
			if i != j && (c.passes(i, j) && c.hearsAny(i) && c.hearsAny(j) || c.haveWitness(i, j)) {
				return true
			}
		}
	}
	return false
}

// haveWitness tells whether another node exchanges hellos with both.
func (c *cluster) haveWitness(i, j int) bool {
	return slices.ContainsFunc(c.all(), func(k int) bool {
		return k != i && k != j && c.nodes[k].stop != nil &&
			c.passes(i, k) && c.passes(k, i) && c.passes(j, k) && c.passes(k, j)
	})
}

// hearsAny tells whether a node hears any other one.
func (c *cluster) hearsAny(i int) bool {
	for j, n := range c.nodes {
		if i != j && n.stop != nil && c.passes(j, i) {
			return true
		}
	}
	return false
}

// has are the nodes that answer, by address.
func (c *cluster) has() map[netip.Addr][]int {
	has := map[netip.Addr][]int{}
	for _, a := range c.vips {
		has[a] = c.answering(a)
	}
	return has
}

// expectOne fails the test unless one node answers for each address.
func (c *cluster) expectOne(when string) {
	c.t.Helper()
	for _, a := range c.vips {
		if owners := c.answering(a); len(owners) != 1 {
			c.t.Fatalf("%s: %v answer for %s", when, owners, a)
		}
	}
}

// passes tells whether hellos get from one node to another one.
func (c *cluster) passes(from, to int) bool {
	c.wires.Lock()
	defer c.wires.Unlock()
	return !c.cut[[2]int{from, to}] && !c.dark[[2]int{from, to}]
}

// sever cuts the way from one node to another.
func (c *cluster) sever(from, to int) {
	c.wires.Lock()
	defer c.wires.Unlock()
	c.cut[[2]int{from, to}] = true
}

// lose has a part of all datagrams be lost.
func (c *cluster) lose(part float64) {
	c.wires.Lock()
	defer c.wires.Unlock()
	c.loss = part
}

// heal mends all cuts.
func (c *cluster) heal() {
	c.wires.Lock()
	defer c.wires.Unlock()
	clear(c.cut)
	clear(c.dark)
	clear(c.muffled)
}

// part cuts both ways between two groups of nodes, or heals.
func (c *cluster) part(left, right []int, cut bool) {
	c.wires.Lock()
	defer c.wires.Unlock()
	for _, i := range left {
		for _, j := range right {
			c.cut[[2]int{i, j}], c.cut[[2]int{j, i}] = cut, cut
		}
	}
}

func (c *cluster) all() (all []int) {
	for i := range c.nodes {
		all = append(all, i)
	}
	return all
}
