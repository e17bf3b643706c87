package pulse

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/linkcheck"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
	"fairlead.dev/fairlead/speaker/pulse/owner"
	"fairlead.dev/fairlead/speaker/pulse/socket"
)

// Mesh tells who is alive; hello.Mesh is one. It runs longer than the server,
// whose last act is a goodbye.
type Mesh interface {
	Members
	Epochs
	Goodbye(hold time.Duration)
	IsQuiet(node string) bool
}

// Epochs are those of addresses that are taken.
type Epochs interface {
	NextEpoch() uint64
	Advance() uint64
}

// Members are the nodes that are alive, and what this one tells them.
type Members interface {
	Set(hello.Wanted)
	View() hello.View
	Changed() <-chan struct{}
}

// Links knows the interfaces; links.Watcher is one.
type Links interface {
	Snapshot() *links.Snapshot
	Changed() <-chan struct{}
	Gateways() []links.Gateway
}

// Responder answers on the local network for the addresses of one family;
// neighbour.Responder is one.
type Responder interface {
	Answerer
	Sentry
	Broken() <-chan struct{}
	Close()
}

// LinkCheck knows over which interfaces frames are exchanged with other nodes; linkcheck.Monitor does.
type LinkCheck interface {
	Set(want linkcheck.Wanted)
	Status() map[int]linkcheck.Status
	Changed() <-chan struct{}
}

// Handover has the kernel hand over what belongs to open connections to the nodes that had their addresses
// before; handover.Handover does.
type Handover interface {
	// Set takes in, by address, the address of the node. The channel is closed once the kernel has it, or
	// refuses it.
	Set(want map[netip.Addr]netip.Addr) (tried <-chan struct{})
	Failure() string // "": all is in place
	Changed() <-chan struct{}
}

// Answerer answers on some interfaces for some addresses.
type Answerer interface {
	Open(want []neighbour.Interface) (failed map[int]error)
	Answer(want, probed map[int][]netip.Addr, every map[netip.Addr]time.Duration)
}

// Sentry knows who else claims the addresses of one family.
type Sentry interface {
	Claimed() <-chan struct{}
	Claims() []neighbour.Claim
	Say(what neighbour.Word, index int, address netip.Addr)
	Ask(index int, address, from netip.Addr, to neighbour.MAC)
}

// BFD holds BFD sessions; bfd.Sessions does. It runs longer than the server.
type BFD interface {
	Set(key view.Secret, want map[string]desired.BFD, have *links.Snapshot)
	Status() map[string]bfd.Status
	Changed() <-chan struct{}
	Goodbye(ctx context.Context, hold time.Duration) error
}

// Adjacency knows the routers at the other ends of interfaces; adjacency.Finder does.
type Adjacency interface {
	Set(interfaces []string, have *links.Snapshot)
	Status() map[string]view.Adjacency
	Changed() <-chan struct{}
}

// Config is what a Server is made of.
type Config struct {
	Node   string // this node; tables of another one are refused
	Socket string // path of the unix socket that the agent connects to
	Mesh   Mesh
	Links  Links
	ARP    Responder // for IPv4
	NDP    Responder // for IPv6
	BFD    BFD

	Adjacency Adjacency
	LinkCheck LinkCheck
	Handover  Handover      // nil: none
	Damping   time.Duration // see owner.Input, as for
	Booted    bool
	Log       *slog.Logger
}

const (
	// retryAfter is the pause before an interface that could not be opened is
	// tried again.
	retryAfter = time.Second
	// lastWord is how long an ending server goes on for its agent, which may be
	// ending as well and has to find out whether the node is leaving.
	lastWord = 2 * time.Second
	// drained is how much longer it goes on for an agent that leaves and still has BGP sessions: a
	// router that loses BFD before may take the node for dead.
	drained = 3 * time.Second
)

// Server is the side of pulse that decides and answers.
type Server struct {
	cfg      Config
	received chan socket.Event
	probes   chan chan struct{}
	state    atomic.Pointer[api.State]

	// What follows belongs to the goroutine of Run.
	agent     *socket.Agent // the newest connection; nil: none
	table     *api.Table    // the last one; nil: none yet
	number    uint64        // of the table, if it came from agent; else 0
	complaint string        // the last one about an agent
	owner     *owner.Machine
	decided   api.State // of addresses and nodes
	known     owner.Input
	tell      hello.Wanted // for the mesh, which was told all of it but whether this node is ready
	isReady   bool         // this node answers for what it owns
	ready     bool         // as the mesh was told
	failed    map[owner.Place]error
	retry     <-chan time.Time // when they are tried again, whatever is heard until then
	next      time.Time        // when the owner is to step; zero: not before something happens
}

// NewServer makes a server that does nothing before it runs.
func NewServer(cfg Config) *Server {
	s := &Server{
		cfg:      cfg,
		received: make(chan socket.Event),
		probes:   make(chan chan struct{}),
		owner:    owner.New(cfg.Node, rand.N[time.Duration]),
	}
	s.state.Store(&api.State{})
	s.known.IsQuiet, s.known.Damping, s.known.Booted = cfg.Mesh.IsQuiet, cfg.Damping, cfg.Booted
	if cfg.Handover == nil {
		s.cfg.Handover = withoutHandover{}
	}
	return s
}

// State is what is answered for now.
func (s *Server) State() api.State { return *s.state.Load() }

// Healthy returns an error if the server does not come round to it before the
// context ends.
func (s *Server) Healthy(ctx context.Context) error {
	reply := make(chan struct{})
	select {
	case s.probes <- reply:
		<-reply
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pulse is stuck or not running: %w", ctx.Err())
	}
}

// Ready is Healthy once the node has listened to the others: until then it answers for nothing. Who
// never heard this node believes Kubernetes (ADR 9), and leaves addresses to it as soon as its pod is ready.
// Once ready, only what Healthy tells makes it fail again.
func (s *Server) Ready(ctx context.Context) error {
	if err := s.Healthy(ctx); err != nil {
		return err
	}
	if !s.cfg.Mesh.View().Settled {
		return errors.New("hellos of other nodes are not listened to, and so this node answers for no address: " +
			"either pulse has no key from the speaker yet, or it cannot open its UDP port; the log of pulse tells of the latter")
	}
	return nil
}

// Run serves until the context ends; see the package comment for how it ends.
// It fails only if it cannot listen on the socket. The packet sockets belong to
// the network namespace that it is called in.
func (s *Server) Run(ctx context.Context) error {
	listener, err := socket.Listen(s.cfg.Socket)
	if err != nil {
		return err
	}
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	tasks.Go(func() { socket.Serve(inner, listener, s.received, s.cfg.Log) })
	s.loop(ctx)
	s.goodbye()
	stop()
	tasks.Wait()
	return nil
}

// loop takes what comes and puts things right after each.
func (s *Server) loop(ctx context.Context) {
	ending := ctx.Done()
	var over, alarm <-chan time.Time
	for until := lastWord; ; {
		changed := true
		select {
		case <-ending:
			ending, over = nil, time.After(until)
		case <-over:
			if !s.leaving() || until == drained {
				return
			}
			until, changed = drained, false
			over = time.After(until)
		case e := <-s.received:
			s.take(e)
		case reply := <-s.probes:
			close(reply)
			continue
		case <-s.cfg.Mesh.Changed():
		case <-s.cfg.Links.Changed():
			changed = false // the owner finds out whether anything follows
		case <-s.cfg.ARP.Broken():
		case <-s.cfg.NDP.Broken():
		case <-s.cfg.BFD.Changed():
		case <-s.cfg.Adjacency.Changed():
		case <-s.cfg.LinkCheck.Changed():
		case <-s.cfg.Handover.Changed():
		case <-s.cfg.ARP.Claimed():
			changed = false
		case <-s.cfg.NDP.Claimed():
			changed = false
		case <-alarm: // what was claimed by now counts for what is decided
			changed = false
		case <-s.retry:
		}
		s.settle(changed)
		alarm = s.alarm()
		if ending == nil && (s.table == nil || s.leaving() && s.agent == nil) {
			return // nothing is left to be said, or to be told
		}
	}
}

// alarm comes when there is something due; nil: not before something happens.
func (s *Server) alarm() <-chan time.Time {
	if s.next.IsZero() {
		return nil
	}
	return time.After(max(time.Until(s.next), time.Millisecond)) // it runs before all other processes
}

// take takes in what came over a connection.
func (s *Server) take(e socket.Event) {
	switch {
	case e.Table == nil && !e.Ended:
		s.meet(e.From)
	case e.From != s.agent:
	case e.Ended:
		s.part(e.Err)
	case e.Table.Node != s.cfg.Node:
		s.complain(fmt.Errorf("table of node %q on node %q: NODE_NAME differs between the containers", e.Table.Node, s.cfg.Node))
	default:
		s.complaint = ""
		s.table, s.number = e.Table, e.Number
	}
}

// meet takes a new connection for the agent's. An older one is that of an agent
// that is gone, though the kernel may not have said so yet.
func (s *Server) meet(a *socket.Agent) {
	if s.agent != nil {
		s.agent.Close()
	}
	s.agent, s.number = a, 0
	s.report()
}

func (s *Server) part(err error) {
	s.agent, s.number = nil, 0
	switch {
	case err != nil:
		s.complain(err)
	case s.complaint == "":
		s.cfg.Log.Info("the agent went away; going on with what it said last")
	}
}

// complain tells once what is wrong with the agent, who tries again and again.
func (s *Server) complain(err error) {
	if s.complaint == err.Error() {
		return
	}
	s.complaint = err.Error()
	s.cfg.Log.Error("the agent cannot be understood; going on with what it said last", "error", err)
}
