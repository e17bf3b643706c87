package pulse

import (
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// open makes the responders listen where they may have to answer.
func (s *Server) open(r reach) map[place]error {
	failed := map[place]error{}
	for _, family := range addr.Families() {
		for index, err := range s.responder(family).Open(interfaces(r.links(family))) {
			failed[place{family, index}] = err
		}
	}
	return failed
}

// answer makes the responders answer for what this node owns, but for the addresses that
// have to wait. Of these, and of those under patrol, it is heard who claims them.
func (s *Server) answer(mine map[netip.Addr][]links.Link, wait map[netip.Addr]bool) {
	answers := map[addr.Family]map[int][]netip.Addr{addr.IPv4: {}, addr.IPv6: {}}
	probed := map[addr.Family]map[int][]netip.Addr{addr.IPv4: {}, addr.IPv6: {}}
	for a, on := range mine {
		of := answers[addr.FamilyOf(a)]
		if wait[a] {
			of = probed[addr.FamilyOf(a)]
		}
		for _, l := range on {
			of[l.Index] = append(of[l.Index], a)
		}
	}
	for a, on := range s.patrol.under() {
		for _, l := range on {
			of := probed[addr.FamilyOf(a)]
			of[l.Index] = append(of[l.Index], a)
		}
	}
	for _, w := range slices.Concat(s.isolation.under(), s.kernels.under(), s.absences.under()) {
		of := probed[addr.FamilyOf(w.address)]
		of[w.link] = append(of[w.link], w.address)
	}
	every := s.intervals(mine, wait)
	for _, family := range addr.Families() {
		s.responder(family).Answer(answers[family], probed[family], every)
	}
}

// intervals are those at which addresses are announced again. One that is to be handed over is
// not: the next announcement of it is the other node's. One that was adopted is, since that
// may be long in coming.
func (s *Server) intervals(mine map[netip.Addr][]links.Link, wait map[netip.Addr]bool) map[netip.Addr]time.Duration {
	every := map[netip.Addr]time.Duration{}
	for a := range mine {
		h, leaves := s.yielding[a]
		if interval := s.table.Claims[a].AnnounceInterval; interval > 0 && !wait[a] && (!leaves || h.adopted) {
			every[a] = interval
		}
	}
	return every
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

// tell logs which interfaces cannot be opened, when that changes, and has them tried again.
func (s *Server) tell(failed map[place]error) {
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
