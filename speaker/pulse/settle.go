package pulse

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
	"fairlead.dev/fairlead/speaker/pulse/owner"
)

// rounds bounds how often the owner is asked again since what it knows changed by what it had done. It mostly is once.
const rounds = 4

// settle makes true what follows from the table, the mesh, the links and what was heard, and reports it. Doing it
// again changes nothing. changed: something else than links and what was heard may be new.
func (s *Server) settle(changed bool) {
	if changed {
		defer s.report()
		if s.table != nil {
			s.cfg.BFD.Set(s.table.Key, s.table.BFD, s.cfg.Links.Snapshot())
		}
	}
	s.collect(changed)
	var frames []owner.Frame
	var out owner.Output
	var taken bool
	for range rounds {
		out = s.owner.Step(time.Now(), s.known)
		frames = append(frames, out.Frames...)
		s.log(out.Findings)
		if out.Decision == nil {
			break
		}
		taken = taken || out.Decision.Taken
		if !s.prepare(out.Decision) {
			break
		}
		s.collect(true)
	}
	if d := out.Decision; d != nil {
		s.handOver(d.Previous, taken)
	}
	s.answer(out.Answers)
	if d := out.Decision; d != nil {
		s.finish(d)
	}
	for _, f := range frames {
		s.send(f)
	}
	s.next = out.Next
}

// collect takes in what is known now.
func (s *Server) collect(changed bool) {
	in := &s.known
	now := s.cfg.Links.Snapshot()
	if in.Changed = changed; changed || now != in.Links {
		in.Gateways, in.LinkCheck = s.cfg.Links.Gateways(), s.cfg.LinkCheck.Status()
		in.Failed = make(map[owner.Place]bool, len(s.failed))
		for at := range s.failed {
			in.Failed[at] = true
		}
	}
	in.Table, in.View, in.Links = s.table, s.cfg.Mesh.View(), now
	in.Heard, in.Epoch = append(s.cfg.ARP.Claims(), s.cfg.NDP.Claims()...), s.cfg.Mesh.NextEpoch()
}

// prepare does what the owner must know the result of, and tells whether that changed anything: it has the responders
// listen, and the mesh told all but that this node serves.
func (s *Server) prepare(d *owner.Decision) (changed bool) {
	if d.Advanced {
		s.cfg.Mesh.Advance()
	}
	if d.Listen == nil {
		return false
	}
	before := s.failed
	s.open(d.Listen)
	changed = !maps.EqualFunc(before, s.failed, func(_, _ error) bool { return true })
	s.cfg.LinkCheck.Set(d.Monitor)
	s.cfg.Adjacency.Set(s.table.Unnumbered, d.Links)
	if d.Tell != nil {
		s.tell, s.isReady = *d.Tell, d.Ready
	}
	if d.Stale {
		version := s.cfg.Mesh.View().Version
		first := s.tell
		first.Serving = s.table.Serving && s.ready
		s.cfg.Mesh.Set(first)
		changed = changed || s.cfg.Mesh.View().Version != version
	}
	return changed
}

// handoverWithin is how long an address waits at most to be answered for until the kernel hands over: another
// program may keep nf_tables busy for longer.
const handoverWithin = 10 * time.Millisecond

// handOver has the kernel hand over to the nodes that had addresses before. What this node is about to answer for
// waits for that, shortly.
func (s *Server) handOver(previous map[netip.Addr]netip.Addr, taken bool) {
	if previous == nil {
		return
	}
	if tried := s.cfg.Handover.Set(previous); taken {
		select {
		case <-tried:
		case <-time.After(handoverWithin):
		}
	}
}

// answer has the responders answer.
func (s *Server) answer(answers map[addr.Family]owner.Answers) {
	if answers == nil {
		return
	}
	for _, family := range addr.Families() {
		a := answers[family]
		s.responder(family).Answer(a.Answered, a.Probed, a.Every)
	}
}

// finish does what answers must precede. Only a settled node answers, and those that answered so far stop when they
// hear that this one serves.
func (s *Server) finish(d *owner.Decision) {
	if s.ready != s.isReady {
		s.ready = s.isReady
		s.cfg.Mesh.Set(s.tell)
	}
	s.decided = d.State
	s.report()
}

// send sends a frame.
func (s *Server) send(f owner.Frame) {
	responder := s.responder(addr.FamilyOf(f.Address))
	if f.From.IsValid() {
		responder.Ask(f.Link, f.Address, f.From, f.To)
	} else {
		responder.Say(f.What, f.Link, f.Address)
	}
}

func (s *Server) log(findings []slog.Record) {
	handler := s.cfg.Log.Handler()
	for _, f := range findings {
		if handler.Enabled(context.Background(), f.Level) {
			_ = handler.Handle(context.Background(), f) // as slog's own functions do
		}
	}
}

// open makes the responders listen where they may have to answer. It logs which interfaces cannot be opened, when that
// changes, and has them tried again.
func (s *Server) open(where map[addr.Family][]links.Link) {
	failed := map[owner.Place]error{}
	for _, family := range addr.Families() {
		for index, err := range s.responder(family).Open(interfaces(where[family])) {
			failed[owner.Place{Family: family, Link: index}] = err
		}
	}
	for at, err := range failed {
		if last := s.failed[at]; last == nil || last.Error() != err.Error() {
			s.cfg.Log.Error("cannot answer on an interface; another node takes over what only it would serve", "error", err)
		}
	}
	for at, err := range s.failed {
		if failed[at] == nil {
			s.cfg.Log.Info("answering on an interface works again or is not needed", "error", err)
		}
	}
	s.failed, s.retry = failed, nil
	if len(failed) > 0 {
		s.retry = time.After(retryAfter)
	}
}

func (s *Server) responder(family addr.Family) Responder {
	if family == addr.IPv6 {
		return s.cfg.NDP
	}
	return s.cfg.ARP
}

func interfaces(all []links.Link) []neighbour.Interface {
	var i []neighbour.Interface
	for _, l := range all {
		i = append(i, neighbour.Interface{Index: l.Index, Name: l.Name, MAC: neighbour.MAC(l.MAC), Ups: l.Ups + l.Failovers})
	}
	return i
}

// report tells the agent what is true now, unless it knows.
func (s *Server) report() {
	next := s.decided
	next.Handover, next.BFD, next.Adjacent = s.cfg.Handover.Failure(), s.cfg.BFD.Status(), s.cfg.Adjacency.Status()
	s.state.Store(&next)
	if s.agent != nil {
		s.agent.Tell(s.number, &next)
	}
}

// withoutHandover is for a node on which nothing is handed over.
type withoutHandover struct{}

func (withoutHandover) Set(map[netip.Addr]netip.Addr) <-chan struct{} {
	tried := make(chan struct{})
	close(tried)
	return tried
}
func (withoutHandover) Failure() string          { return "" }
func (withoutHandover) Changed() <-chan struct{} { return nil }
