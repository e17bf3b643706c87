package pulse

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/arp"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// Mesh tells who is alive; hello.Mesh is one. It runs longer than the server,
// whose last act is a goodbye.
type Mesh interface {
	Set(hello.Wanted)
	View() hello.View
	Changed() <-chan struct{}
	Goodbye(hold time.Duration)
}

// Links knows the interfaces; links.Watcher is one.
type Links interface {
	Snapshot() *links.Snapshot
	Changed() <-chan struct{}
}

// Responder answers on the local network; arp.Responder is one.
type Responder interface {
	Open(want []arp.Interface) (failed map[int]error)
	Answer(want map[int][]netip.Addr)
	Broken() <-chan struct{}
	Close()
}

// Config is what a Server is made of.
type Config struct {
	Node   string // this node; tables of another one are refused
	Socket string // path of the unix socket that the agent connects to
	Mesh   Mesh
	Links  Links
	ARP    Responder
	Log    *slog.Logger
}

const (
	// retryAfter is the pause before an interface that could not be opened is
	// tried again.
	retryAfter = time.Second
	// lastWord is how long an ending server goes on for its agent, which may be
	// ending as well and has to find out whether the node is leaving.
	lastWord = 2 * time.Second
)

// Server is the side of pulse that decides and answers.
type Server struct {
	cfg      Config
	arrived  chan *agent
	received chan delivery
	parted   chan parting
	probes   chan chan struct{}
	state    atomic.Pointer[State]

	// What follows belongs to the goroutine of Run.
	agent  *agent // the newest connection; nil: none
	table  *Table // the last one; nil: none yet
	number uint64 // of the table, if it came from agent; else 0
	said   bool   // the mesh knows the table, and what follows:
	unable []netip.Addr
	ready  bool // this node answers for what it owns
	failed map[int]error
	told   string // the last complaint about an agent
}

// NewServer makes a server that does nothing before it runs.
func NewServer(cfg Config) *Server {
	s := &Server{
		cfg:      cfg,
		arrived:  make(chan *agent),
		received: make(chan delivery),
		parted:   make(chan parting),
		probes:   make(chan chan struct{}),
	}
	s.state.Store(&State{})
	return s
}

// State is what is answered for now.
func (s *Server) State() State { return *s.state.Load() }

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

// Run serves until the context ends; see the package comment for how it ends.
// It fails only if it cannot listen on the socket. The packet sockets belong to
// the network namespace that it is called in.
func (s *Server) Run(ctx context.Context) error {
	listener, err := listen(s.cfg.Socket)
	if err != nil {
		return err
	}
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	tasks.Go(func() { s.accept(inner, listener, &tasks) })
	s.loop(ctx)
	s.goodbye()
	stop()
	_ = listener.Close()
	tasks.Wait()
	return nil
}

// loop takes what comes and puts things right after each.
func (s *Server) loop(ctx context.Context) {
	ending := ctx.Done()
	var over, retry <-chan time.Time
	for {
		select {
		case <-ending:
			ending, over = nil, time.After(lastWord)
		case <-over:
			return
		case a := <-s.arrived:
			s.meet(a)
		case d := <-s.received:
			s.take(d)
		case p := <-s.parted:
			s.part(p)
		case reply := <-s.probes:
			close(reply)
			continue
		case <-s.cfg.Mesh.Changed():
		case <-s.cfg.Links.Changed():
		case <-s.cfg.ARP.Broken():
		case <-retry:
		}
		if s.settle(); len(s.failed) > 0 {
			retry = time.After(retryAfter)
		}
		if ending == nil && (s.table == nil || s.leaving() && s.agent == nil) {
			return // nothing is left to be said, or to be told
		}
	}
}

func (s *Server) leaving() bool { return s.table != nil && s.table.Leaving }

// goodbye ends the answers and the hellos, in the order that suits.
func (s *Server) goodbye() {
	if s.leaving() {
		s.cfg.ARP.Close()
		s.cfg.Mesh.Goodbye(0)
		return
	}
	s.cfg.Mesh.Goodbye(restartHold)
	s.cfg.ARP.Close()
}

// meet takes a new connection for the agent's. An older one is that of an agent
// that is gone, though the kernel may not have said so yet.
func (s *Server) meet(a *agent) {
	if s.agent != nil {
		s.agent.close()
	}
	s.agent, s.number = a, 0
	s.report()
}

func (s *Server) take(d delivery) {
	if d.from != s.agent {
		return
	}
	if d.err == nil && d.table.Node != s.cfg.Node {
		d.err = fmt.Errorf("table of node %q on node %q: NODE_NAME differs between the containers", d.table.Node, s.cfg.Node)
	}
	if d.err != nil {
		s.complain(d.err)
		return
	}
	s.told = ""
	s.table, s.number, s.said = &d.table, d.number, false
}

func (s *Server) part(p parting) {
	if p.from != s.agent {
		return
	}
	s.agent, s.number = nil, 0
	switch {
	case p.err != nil:
		s.complain(p.err)
	case s.told == "":
		s.cfg.Log.Info("the agent went away; going on with what it said last")
	}
}

// complain tells once what is wrong with the agent, who tries again and again.
func (s *Server) complain(err error) {
	if s.told == err.Error() {
		return
	}
	s.told = err.Error()
	s.cfg.Log.Error("the agent cannot be understood; going on with what it said last", "error", err)
}

// settle makes true what follows from the table, the mesh and the links, and
// reports it. Doing it again changes nothing.
func (s *Server) settle() {
	defer s.report()
	snapshot := s.cfg.Links.Snapshot()
	if s.table == nil || snapshot == nil {
		s.assess(nil)
		return
	}
	r := reachOf(*s.table, snapshot)
	failed := s.cfg.ARP.Open(interfaces(r.links()))
	s.tell(failed)
	r.without(failed)
	s.say(r.unable(), s.ready)
	v := s.cfg.Mesh.View()
	mine := owned(*s.table, v, r)
	answers := map[int][]netip.Addr{}
	for a, on := range mine {
		for _, l := range on {
			answers[l.Index] = append(answers[l.Index], a)
		}
	}
	s.cfg.ARP.Answer(answers)
	// Only a settled node answers, and those that answered so far stop when they
	// hear that this one serves. So that is said last.
	s.say(s.unable, v.Settled)
	s.assess(mine)
}

// say tells the mesh the table and what follows from it, if that is news.
func (s *Server) say(unable []netip.Addr, ready bool) {
	if s.said && s.ready == ready && slices.Equal(unable, s.unable) {
		return
	}
	s.said, s.unable, s.ready = true, unable, ready
	s.cfg.Mesh.Set(wanted(*s.table, unable, ready))
}

func interfaces(all []links.Link) []arp.Interface {
	var i []arp.Interface
	for _, l := range all {
		i = append(i, arp.Interface{Index: l.Index, Name: l.Name, MAC: arp.MAC(l.MAC), Ups: l.Ups})
	}
	return i
}

// tell logs which interfaces cannot be opened, when that changes.
func (s *Server) tell(failed map[int]error) {
	for index, err := range failed {
		if last := s.failed[index]; last == nil || last.Error() != err.Error() {
			s.cfg.Log.Error("cannot answer on an interface; another node takes over what only it would serve", "error", err)
		}
	}
	for index, err := range s.failed {
		if failed[index] == nil {
			s.cfg.Log.Info("answering on an interface works again or is not needed", "error", err)
		}
	}
	s.failed = failed
}

// assess makes the state from what is answered for.
func (s *Server) assess(mine map[netip.Addr][]links.Link) {
	last, v := s.State(), s.cfg.Mesh.View()
	next := State{
		Settled: v.Settled,
		Alive:   slices.Sorted(maps.Keys(v.Alive)),
		Owned:   make(map[netip.Addr]Ownership, len(mine)),
		Unable:  s.unable,
	}
	var taken, lost []netip.Addr
	for a, on := range mine {
		o, had := last.Owned[a]
		if !had {
			o.Since = time.Now()
			taken = append(taken, a)
		}
		o.Interfaces = nil
		for _, l := range on {
			o.Interfaces = append(o.Interfaces, l.Name)
		}
		next.Owned[a] = o
	}
	for a := range last.Owned {
		if _, still := mine[a]; !still {
			lost = append(lost, a)
		}
	}
	if len(taken)+len(lost) > 0 {
		s.cfg.Log.Info("answering for other addresses than before", "taken", taken, "lost", lost, "owned", len(mine))
	}
	s.state.Store(&next)
}

// report tells the agent, unless it knows.
func (s *Server) report() {
	if s.agent == nil {
		return
	}
	if err := s.agent.tell(s.number, s.State()); err != nil {
		s.complain(errors.Join(errors.New("the state cannot be encoded"), err))
	}
}
