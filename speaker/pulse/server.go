package pulse

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// Mesh tells who is alive; hello.Mesh is one. It runs longer than the server,
// whose last act is a goodbye.
type Mesh interface {
	Members
	Goodbye(hold time.Duration)
	Advance() uint64
	IsQuiet(node string) bool
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
	Set(want map[string]desired.BFD, have *links.Snapshot)
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
	OnLink    OnLink
	Handover  Handover // nil: none
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
	arrived  chan *agent
	received chan delivery
	parted   chan parting
	probes   chan chan struct{}
	state    atomic.Pointer[api.State]
	tables   reader // of all connections: a new agent mostly has the table of the last one

	// What follows belongs to the goroutine of Run.
	agent     *agent     // the newest connection; nil: none
	table     *api.Table // the last one; nil: none yet
	before    *api.Table // the one before it, until what follows from the change is done
	number    uint64     // of the table, if it came from agent; else 0
	said      bool       // the mesh knows the table, and what follows:
	unable    []netip.Addr
	ready     bool                        // this node answers for what it owns
	mine      map[netip.Addr][]links.Link // what it owns, withheld or not
	wait      map[netip.Addr]bool         // what it withholds
	own       []hello.Station
	told      []hello.Interface // to the mesh, of this node
	apart     apart
	failed    map[place]error
	retry     <-chan time.Time // when they are tried again, whatever is heard until then
	vouched   bool             // as the mesh was told, and so are claims
	claims    []hello.Claim
	complaint string // the last one about an agent
	isolation isolation
	listening listening
	former    predecessors
	kernels   kernels
	concern   concern
	answering []string // of kernels, when it was logged last
	absences  absences
	absent    []string // nodes that count as dead by them, as the mesh was told
	strangers
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
	s.state.Store(&api.State{})
	s.yielding, s.former, s.kernels = yielding{}, predecessors{}, kernels{}
	s.patrol.self, s.patrol.jitter, s.patrol.strange = cfg.Node, rand.N[time.Duration], func(m neighbour.MAC) bool { return s.nodes.strange(m) }
	s.patrol.kernel = func(asked map[netip.Addr][]links.Link) map[netip.Addr]string {
		return hostchecks.Answering(cfg.Links.Snapshot(), asked)
	}
	s.vetting.self, s.vetting.kernel = cfg.Node, s.kernelReplies
	return s
}

// kernelReplies tells whether an interface of this node has an address, so that its kernel replies for it on a link
// on which the node would answer. Those that kube-proxy gives to its interface are the Service's own.
func (s *Server) kernelReplies(a netip.Addr) (claim neighbour.Claim, does bool) {
	const ofProxy = "kube-ipvs0"
	snapshot, on := s.cfg.Links.Snapshot(), s.mine[a]
	if len(on) == 0 {
		on = snapshot.Answering(a, s.table.Claims[a].Interfaces, s.table.NodeAddrs)
	}
	holder, does := hostchecks.Answering(snapshot, map[netip.Addr][]links.Link{a: on})[a]
	if !does || holder == ofProxy {
		return claim, false
	}
	return neighbour.Claim{Address: a, Station: neighbour.MAC(on[0].MAC), Interface: holder}, true
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
	var over, alarm <-chan time.Time
	for until := lastWord; ; {
		news := true
		select {
		case <-ending:
			ending, over = nil, time.After(until)
		case <-over:
			if !s.leaving() || until == drained {
				return
			}
			until, news = drained, false
			over = time.After(until)
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
			news = s.rewired()
		case <-s.cfg.ARP.Broken():
		case <-s.cfg.NDP.Broken():
		case <-s.cfg.BFD.Changed():
		case <-s.cfg.Adjacency.Changed():
		case <-s.cfg.OnLink.Changed():
		case <-s.handoverChanged():
		case <-s.cfg.ARP.Claimed():
			news = s.hear(s.cfg.ARP)
		case <-s.cfg.NDP.Claimed():
			news = s.hear(s.cfg.NDP)
		case <-alarm: // what was claimed by now counts for what is decided
			news = s.hear(s.cfg.ARP)
			news = s.hear(s.cfg.NDP) || news
		case <-s.retry:
		}
		if news {
			s.settle()
		}
		if s.attend() {
			s.settle()
		}
		alarm = s.alarm()
		if ending == nil && (s.table == nil || s.leaving() && s.agent == nil) {
			return // nothing is left to be said, or to be told
		}
	}
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
	s.complaint = ""
	s.before, s.table, s.number, s.said = s.table, &d.table, d.number, false
	now := time.Now()
	s.vetting.elsewhere(now, d.table.Elsewhere)
	s.vetting.table(now, d.table.Addresses())
}

func (s *Server) part(p parting) {
	if p.from != s.agent {
		return
	}
	s.agent, s.number = nil, 0
	switch {
	case p.err != nil:
		s.complain(p.err)
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

// settle makes true what follows from the table, the mesh and the links, and
// reports it. Doing it again changes nothing.
func (s *Server) settle() {
	defer s.report()
	snapshot := s.cfg.Links.Snapshot()
	if s.table != nil {
		s.cfg.BFD.Set(s.table.BFD, snapshot)
	}
	if s.table == nil || snapshot == nil {
		s.assess(nil)
		return
	}
	now := time.Now()
	// Before the links are looked at: those on which something is handed over matter, named by the table or not.
	s.yielding.part(now, s.State().Owned, s.before, s.table, s.cfg.Mesh.View(), s.disputes.has)
	s.concern.look(s.table, s.yielding.names(), snapshot)
	snapshot = s.concern.links
	s.cfg.Adjacency.Set(s.table.Unnumbered, snapshot)
	r := s.concern.reachable()
	s.yielding.reach(r, s.table, snapshot)
	s.listening.update(now, r)
	failed := s.open(r)
	s.tell(failed)
	stations := stationsOf(r, s.table.NodeAddrs, snapshot)
	r.without(failed)
	s.present(stations, s.separate(r, s.cfg.Mesh.View()))
	s.miss(now, r)
	s.say(r.unable(), s.ready)
	v := s.cfg.Mesh.View()
	s.stand(now, v, r)
	serves := s.isolation.is != cutOff
	due, elsewhere, behind := owned(*s.table, v, r, serves)
	mine := s.hesitate(now, due, v)
	s.nodes.learn(now, s.cfg.Node, s.own, v)
	s.vetting.told(now, v)
	wait := s.vetting.vet(now, mine, elsewhere)
	s.yielding.update(now, s.State().Owned, elsewhere, s.before, s.table, v, s.disputes.has)
	s.yielding.told(s.cfg.Node, v)
	left := s.settleDisputes(now, mine, v)
	maps.Copy(wait, left)
	s.yielding.still(mine, r)
	s.former.follow(s.before, s.table, v, due, left)
	s.kernels.update(now, v.Silent, s.former, s.table, r)
	s.disputes.take(mine, wait, s.cfg.Mesh.Advance)
	s.discuss(slices.Concat(s.disputes.claims(now), s.yielding.claims(s.disputes.epochs), s.vetting.claims(s.disputes.has), s.vetting.occupied(v, s.disputes.has)))
	s.before = nil
	s.mine, s.wait = mine, wait
	maps.DeleteFunc(behind, func(a netip.Addr, _ standby) bool { return s.yielding.isAdopted(a) })
	s.patrol.keep(now, behind, r, len(s.table.Claims)+len(s.table.Elsewhere))
	s.handOver(mine, v)
	s.answer(mine, wait)
	// Only a settled node answers, and those that answered so far stop when they
	// hear that this one serves. So that is said last.
	s.say(s.unable, v.Settled && serves)
	s.assess(without(mine, wait))
}

// present notes by which stations this node is met, and on which interfaces, for the mesh to be told.
func (s *Server) present(own []hello.Station, interfaces []hello.Interface) {
	if !slices.Equal(own, s.own) || !slices.EqualFunc(interfaces, s.told, hello.Interface.Equal) {
		s.own, s.told, s.said = own, interfaces, false
	}
}

// say tells the mesh the table and what follows from it, if that is news.
func (s *Server) say(unable []netip.Addr, ready bool) {
	if s.said && s.ready == ready && slices.Equal(unable, s.unable) {
		return
	}
	s.said, s.unable, s.ready = true, unable, ready
	w := wanted(*s.table, unable, ready, s.own, s.told)
	w.Peers = unready(w.Peers, s.absent)
	w.Vouched, w.Claims = s.vouched, s.claims
	s.cfg.Mesh.Set(w)
}

// assess makes the state from what is answered for.
func (s *Server) assess(mine map[netip.Addr][]links.Link) {
	last, v := s.State(), s.cfg.Mesh.View()
	next := api.State{
		Settled: v.Settled,
		Alive:   slices.DeleteFunc(slices.Sorted(maps.Keys(v.Alive)), func(node string) bool { return slices.Contains(v.Apart, node) }),
		Silent:  slices.Sorted(slices.Values(slices.Concat(v.Silent, v.Apart, s.absent))),
		Owned:   make(map[netip.Addr]api.Ownership, len(mine)),
		Unable:  s.unable,
		CutOff:  s.isolation.mute(),

		CutLinks: s.apart.names,
		Left:     s.disputes.leftTo(time.Now()),
		Handover: s.handoverFailure(),
		BFD:      s.cfg.BFD.Status(),

		Adjacent: s.cfg.Adjacency.Status(),
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
		next.Owned[a] = placed(o, *s.table, v, a)
	}
	for a := range last.Owned {
		if _, still := mine[a]; !still {
			lost = append(lost, a)
		}
	}
	if len(taken)+len(lost) > 0 {
		s.cfg.Log.Info("answering for other addresses than before", "taken", some(taken), "lost", some(lost), "owned", len(mine))
	}
	s.contests.keep(time.Now(), mine, taken)
	next.Contested, next.Doubted = s.contested(), s.patrol.doubts()
	s.warn(last.Contested, next.Contested)
	s.tellKernels()
	s.state.Store(&next)
}

// some are the first of the addresses for a line of the log, and how many there are beside them: tens
// of thousands may move at once.
func some(all []netip.Addr) []string {
	const most = 20
	slices.SortFunc(all, netip.Addr.Compare)
	var told []string
	for _, a := range all[:min(len(all), most)] {
		told = append(told, a.String())
	}
	if more := len(all) - most; more > 0 {
		told = append(told, fmt.Sprintf("and %d more", more))
	}
	return told
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
