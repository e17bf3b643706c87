package owner

import (
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// stationsOf are the MACs by which the node can be met: on the links that it may answer on,
// and on those with its own addresses, by which others know a node that answers nowhere.
func stationsOf(on networks, nodeAddrs []netip.Addr, s *links.Snapshot) []hello.Station {
	var stations []hello.Station
	add := func(l links.Link) {
		if len(l.MAC) == len(hello.Station{}) {
			stations = append(stations, hello.Station(l.MAC))
		}
	}
	for _, l := range on.all() {
		add(l)
	}
	for _, l := range s.All() {
		if slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return slices.Contains(nodeAddrs, p.Addr()) }) {
			add(l)
		}
	}
	slices.SortFunc(stations, func(a, b hello.Station) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(stations)
}

// kernelReplies tells whether an interface of this node has an address, so that its kernel replies for it on a link
// on which the node would answer. Those that kube-proxy gives to its interface are the Service's own.
func (m *Machine) kernelReplies(a netip.Addr) (claim neighbour.Claim, does bool) {
	const ofProxy = "kube-ipvs0"
	snapshot, on := m.in.Links, m.mine[a]
	if len(on) == 0 {
		on = snapshot.Answering(a, m.table.Claims[a].Interfaces, m.table.NodeAddrs)
	}
	holder, does := hostchecks.Answering(snapshot, map[netip.Addr][]links.Link{a: on})[a]
	if !does || holder == ofProxy {
		return claim, false
	}
	return neighbour.Claim{Address: a, Station: neighbour.MAC(on[0].MAC), Interface: holder}, true
}

// hear takes in what other stations claim, and tells whether anything follows from it.
func (m *Machine) hear(now time.Time) (news bool) {
	for _, claim := range m.in.Heard {
		claim = m.nodes.attribute(claim)
		news = m.dataplanes.claimed(now, claim, m.nodes) || news
		news = m.unheard.claimed(now, claim) || news
		witness, vouches := m.fencing.claimed(now, claim)
		switch {
		case witness:
			news = vouches || news
		case m.probing.asks(claim.Address):
			news = m.probing.claimed(now, claim, m.nodes) || news
		case m.audit.asks(claim.Address):
			m.audit.claimed(claim, m.nodes.have(claim.Station))
		case m.isAnswered(claim.Address) && m.nodes.strange(claim.Station):
			news = m.defence.claimed(now, claim) || news
		case m.nodes.have(claim.Station):
			news = m.taken(now, claim) || news
		}
	}
	return news
}

// taken takes in that a node claims an address, and tells whether anything follows. Of two interfaces of this
// one on a network each hears the other.
func (m *Machine) taken(now time.Time, claim neighbour.Claim) (news bool) {
	node := m.nodes.of(claim.Station)
	if node == m.node {
		return false
	}
	if _, yields := m.releases[claim.Address]; yields {
		return m.releases.claimed(now, claim, m.in.View.IsAlive(node))
	}
	if m.table == nil || !m.isAnswered(claim.Address) && m.arbitration.of[claim.Address] == nil {
		return false
	}
	news, defend := m.arbitration.claimed(now, claim, node, m.table, m.in.View)
	if defend {
		m.out.Frames = append(m.out.Frames, Frame{What: neighbour.Announcement, Address: claim.Address, Link: claim.Index})
	}
	return news
}

// attend finds what is due, what is to be said of that, and whether it left anything to decide.
func (m *Machine) attend(now time.Time) (news bool) {
	words, questions, over := m.defence.due(now)
	probes, free := m.probing.due(now)
	asks, listen, found := m.audit.due(now, m.in.View)
	if listen && m.table != nil { // which changes no owner
		m.out.Answers = m.answers()
	}
	adopted := m.adopt(now)
	inquiries, talk := m.arbitration.due(now, m.in.IsQuiet)
	successors, waits := m.releases.due(now)
	m.inquire(asks, m.audit.under())
	m.inquire(questions, m.mine)
	for _, w := range slices.Concat(words, probes, inquiries, successors) {
		for _, l := range m.mine[w.address] {
			if w.link == 0 || w.link == l.Index {
				m.utter(w, l)
			}
		}
	}
	fences, again := m.fencing.due(now)
	living, dead := m.dataplanes.due(now)
	unheard, missed := m.unheard.due(now)
	for _, w := range slices.Concat(fences, living, unheard) {
		m.out.Frames = append(m.out.Frames, Frame{Address: w.address, Link: w.link, From: w.from})
	}
	return m.listening.isOver(now) || m.incumbents.isDue(now) || m.damping.isDue(now) || waits || over || free || found || adopted || again || dead || missed || talk
}

// adopt takes the addresses that no node answers for, and tells whether anything follows. While a living node does
// not hear this one, or is not heard, it may be the one that answers.
func (m *Machine) adopt(now time.Time) (news bool) {
	v := m.in.View
	hears := len(v.Apart) == 0
	for _, member := range v.Alive {
		hears = hears && !member.Deaf
	}
	taken, news := m.backups.due(now, hears)
	for _, a := range taken {
		m.releases.adopt(now, a)
	}
	if len(taken) > 0 {
		m.warn("no node answers for addresses that are another node's by the table of this one; it answers until that node does: "+
			"see whether all nodes reach the API server", "addresses", some(taken))
	}
	return news || len(taken) > 0
}

// inquire asks for addresses as a client does that has an address of this node, so that the
// kernels of others say what they would say to clients: a proxy, for one, answers to none
// without an address, and IPv6 tells all of the segment then.
func (m *Machine) inquire(asks []netip.Addr, under map[netip.Addr][]links.Link) {
	for _, a := range asks {
		for _, l := range under[a] {
			m.ask(a, l, neighbour.MAC{})
		}
	}
}

// ask asks for an address as a client does; without an address of its own the node probes.
func (m *Machine) ask(a netip.Addr, l links.Link, to neighbour.MAC) {
	f := Frame{What: neighbour.Probe, Address: a, Link: l.Index}
	if own := l.Own(a); own.IsValid() {
		f.From, f.To = own, to
	}
	m.out.Frames = append(m.out.Frames, f)
}

// utter says a word on a link.
func (m *Machine) utter(w word, l links.Link) {
	if w.to.Station() {
		m.ask(w.address, l, w.to)
	} else {
		m.out.Frames = append(m.out.Frames, Frame{What: w.what, Address: w.address, Link: l.Index})
	}
}

// answers are what this node owns, but for the addresses that have to wait. Of these, and of those that it asks for,
// it is to be heard which stations claim them.
func (m *Machine) answers() map[addr.Family]Answers {
	all, every := map[addr.Family]Answers{}, map[netip.Addr]time.Duration{}
	for _, family := range addr.Families() {
		all[family] = Answers{Answered: map[int][]netip.Addr{}, Probed: map[int][]netip.Addr{}, Every: every}
	}
	for a, on := range m.mine {
		of := all[addr.FamilyOf(a)].Answered
		if m.wait[a] {
			of = all[addr.FamilyOf(a)].Probed
		}
		for _, l := range on {
			of[l.Index] = append(of[l.Index], a)
		}
		// One that is to be handed over, or left to another station, is not announced again: the next announcement of it is the other's. One
		// that was adopted is, since that may be long in coming.
		h, leaves := m.releases[a]
		if interval := m.table.Claims[a].AnnounceInterval; interval > 0 && !m.wait[a] && (!leaves || h.adopted) && !m.defence.yields(a) {
			every[a] = interval
		}
	}
	for a, on := range m.audit.under() {
		of := all[addr.FamilyOf(a)].Probed
		for _, l := range on {
			of[l.Index] = append(of[l.Index], a)
		}
	}
	for _, w := range slices.Concat(m.fencing.under(), m.dataplanes.under(), m.unheard.under()) {
		of := all[addr.FamilyOf(w.address)].Probed
		of[w.link] = append(of[w.link], w.address)
	}
	return all
}

// next is when there is something due; zero: not before something happens.
func (m *Machine) next() time.Time {
	next := m.listening.until
	for _, at := range []time.Time{
		m.fencing.next(), m.dataplanes.next(), m.unheard.next(), m.defence.next(), m.probing.next(), m.releases.next(), m.backups.next(), m.audit.next(), m.arbitration.next(), m.incumbents.wake, m.damping.at,
	} {
		next = sooner(next, at)
	}
	return next
}
