package pulse

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// strangers is what the server knows of the stations that have addresses, or should.
type strangers struct {
	nodes    nodes
	contests contests
	vetting  vetting
	yielding yielding
	patrol   patrol
	disputes disputes
}

// stationsOf are the MACs by which the node can be met: on the links that it may answer on,
// and on those with its own addresses, by which others know a node that answers nowhere.
func stationsOf(r reach, nodeAddrs []netip.Addr, s *links.Snapshot) []hello.Station {
	var stations []hello.Station
	add := func(l links.Link) {
		if len(l.MAC) == len(hello.Station{}) {
			stations = append(stations, hello.Station(l.MAC))
		}
	}
	for _, family := range addr.Families() {
		for _, l := range r.links(family) {
			add(l)
		}
	}
	for _, l := range s.All() {
		if slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return slices.Contains(nodeAddrs, p.Addr()) }) {
			add(l)
		}
	}
	slices.SortFunc(stations, func(a, b hello.Station) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(stations)
}

// hear takes in what other stations claim, and tells whether anything follows from it.
func (s *Server) hear(from Responder) (news bool) {
	now := time.Now()
	for _, claim := range from.Claims() {
		claim = s.nodes.attribute(claim)
		news = s.kernels.claimed(now, claim, s.nodes) || news
		news = s.absences.claimed(now, claim) || news
		witness, vouches := s.isolation.claimed(now, claim)
		switch {
		case witness:
			news = vouches || news
		case s.vetting.asks(claim.Address):
			news = s.vetting.claimed(now, claim, s.nodes) || news
		case s.patrol.asks(claim.Address):
			s.patrol.claimed(claim, s.nodes.have(claim.Station))
		case s.answers(claim.Address) && s.nodes.strange(claim.Station):
			news = s.contests.claimed(now, claim) || news
		case s.nodes.have(claim.Station):
			news = s.taken(now, claim) || news
		}
	}
	return news
}

// taken takes in that a node claims an address, and tells whether anything follows. Of two interfaces of this
// one on a network each hears the other.
func (s *Server) taken(now time.Time, claim neighbour.Claim) (news bool) {
	node := s.nodes.of(claim.Station)
	if node == s.cfg.Node {
		return false
	}
	if _, yields := s.yielding[claim.Address]; yields {
		return s.yielding.claimed(now, claim)
	}
	if s.table == nil || !s.answers(claim.Address) && s.disputes.of[claim.Address] == nil {
		return false
	}
	news, defend := s.disputes.claimed(now, claim, node, s.table, s.cfg.Mesh.View())
	if defend {
		s.responder(addr.FamilyOf(claim.Address)).Say(neighbour.Announcement, claim.Index, claim.Address)
	}
	return news
}

// answers tells whether an address is answered for.
func (s *Server) answers(a netip.Addr) bool {
	_, is := s.State().Owned[a]
	return is
}

// attend says what is due about other stations, and tells whether that left anything to settle.
func (s *Server) attend() (news bool) {
	now := time.Now()
	words, over := s.contests.due(now)
	probes, free := s.vetting.due(now)
	asks, listen, found := s.patrol.due(now, s.cfg.Mesh.View())
	if listen { // which changes nothing of who owns what
		s.answer(s.mine, s.wait)
	}
	found = s.adopt(now) || found
	inquiries, talk := s.disputes.due(now, s.cfg.Mesh.IsQuiet)
	successors, waits := s.yielding.due(now)
	s.inquire(asks)
	for _, w := range slices.Concat(words, probes, inquiries, successors) {
		for _, l := range s.mine[w.address] {
			if w.link == 0 || w.link == l.Index {
				s.utter(w, l)
			}
		}
	}
	questions, again := s.isolation.due(now)
	living, dead := s.kernels.due(now)
	unheard, missed := s.absences.due(now)
	for _, w := range slices.Concat(questions, living, unheard) {
		s.responder(addr.FamilyOf(w.address)).Ask(w.link, w.address, w.from, neighbour.MAC{})
	}
	return s.listening.isOver(now) || waits || over || free || found || again || dead || missed || talk
}

// adopt has the addresses taken for which nobody answers, and tells whether anything follows. While a
// living node does not hear this one, or is not heard, it may be the one that answers.
func (s *Server) adopt(now time.Time) (news bool) {
	if s.patrol.found == nil {
		return false
	}
	v := s.cfg.Mesh.View()
	hears := len(v.Apart) == 0
	for _, m := range v.Alive {
		hears = hears && !m.Deaf
	}
	var taken []netip.Addr
	for a, nobody := range s.patrol.found {
		if s.yielding.adopt(now, a, nobody && hears) {
			news = true
		}
		if s.yielding.isAdopted(a) {
			taken = append(taken, a)
		}
	}
	s.patrol.found = nil
	if len(taken) > 0 {
		s.cfg.Log.Warn("nobody answers for addresses that are another node's by the table of this one; it answers until that node does: "+
			"see whether all nodes reach the API server", "addresses", some(taken))
	}
	return news
}

// inquire asks for addresses as a client does that has an address of this node, so that the
// kernels of others say what they would say to clients: a proxy, for one, answers to nobody
// without an address, and IPv6 tells all of the segment then.
func (s *Server) inquire(asks []netip.Addr) {
	under := s.patrol.under()
	for _, a := range asks {
		for _, l := range under[a] {
			s.ask(a, l, neighbour.MAC{})
		}
	}
}

// ask asks for an address as a client does; without an address of its own the node probes.
func (s *Server) ask(a netip.Addr, l links.Link, to neighbour.MAC) {
	if own := l.Own(a); own.IsValid() {
		s.responder(addr.FamilyOf(a)).Ask(l.Index, a, own, to)
	} else {
		s.responder(addr.FamilyOf(a)).Say(neighbour.Probe, l.Index, a)
	}
}

// utter says a word on a link.
func (s *Server) utter(w word, l links.Link) {
	if w.to.Station() {
		s.ask(w.address, l, w.to)
	} else {
		s.responder(addr.FamilyOf(w.address)).Say(w.what, l.Index, w.address)
	}
}

// alarm is when there is to attend to other stations; nil: not before something happens.
func (s *Server) alarm() <-chan time.Time {
	next := sooner(sooner(s.isolation.next(), s.kernels.next()), sooner(s.absences.next(), s.listening.until))
	for _, at := range []time.Time{s.contests.next(), s.vetting.next(), s.yielding.next(), s.patrol.next(), s.disputes.next()} {
		next = sooner(next, at)
	}
	if next.IsZero() {
		return nil
	}
	return time.After(max(time.Until(next), time.Millisecond)) // it runs before all other processes
}

// contested is what there is to tell of strangers.
func (s *Server) contested() map[netip.Addr]api.Contest {
	all := s.vetting.foes()
	for a, c := range s.contests.of {
		all[a] = c.Contest
	}
	return all
}

// warn logs which stations have addresses of ours, when that changes.
func (s *Server) warn(before, now map[netip.Addr]api.Contest) {
	for _, a := range slices.SortedFunc(maps.Keys(now), netip.Addr.Compare) {
		if c := now[a]; before[a] != c {
			s.cfg.Log.Warn("another station, or an interface of a node, has an address of ours", "address", a, "station", c.Station,
				"node", c.Node, "interface", c.Interface, "withheld", c.Withheld)
		}
	}
	for a, c := range before {
		if _, still := now[a]; !still {
			s.cfg.Log.Info("the address is contested no more", "address", a, "station", c.Station)
		}
	}
}
