package bgp

import (
	"iter"
	"maps"
	"net/netip"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// defaultBurst is how many new routes are handed to the server at once, some 10 ms. If more are
// new together, as when a process begins, they come by and by, lest what is new after them waits.
const defaultBurst = 500

// apply makes the routes those wanted and dials, unless that was done before; the session
// then tries to come up until it is ended. Gained routes go before lost ones.
//
// All routes come before the peer: they are then sent in one go, followed by the End-of-RIB
// that lets a peer drop what it kept over a restart. Those that are leaving are asked to be left where
// they were announced.
func (s *session) apply(want desired.Session) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retime(want.Identity.ConnectTime)
	hops := nextHopsOf(want.Identity)
	some, known := s.changed(want, hops)
	s.revision = 0 // until all of it is done
	for prefix, late := range s.backlog {
		if attrs, ok := want.Routes[prefix]; !ok || !late.equal(route{attrs: attrs, nextHop: hops.of(prefix)}) {
			delete(s.backlog, prefix)
		}
	}
	stranded, gained := map[netip.Prefix]error{}, map[netip.Prefix]route{}
	kept := 0
	for prefix, attrs := range among(want.Routes, some, known) {
		wanted := route{attrs: attrs, nextHop: hops.of(prefix)}
		if why := unroutable(prefix, wanted); why != nil {
			stranded[prefix] = why
			continue
		}
		have, ok := s.routes[prefix]
		if ok {
			kept++
		}
		if ok && have.equal(wanted) {
			continue
		}
		if _, late := s.backlog[prefix]; !late {
			gained[prefix] = wanted
		}
	}
	for prefix := range want.Leaving {
		have, ok := s.routes[prefix]
		if !ok || !leaves(prefix, want) {
			continue
		}
		if kept++; !have.draining {
			have.draining = true
			gained[prefix] = have
		}
	}
	if !maps.Equal(stranded, s.stranded) {
		s.stranded, s.accounted = stranded, false
	}
	fewer := known || len(s.routes) > kept
	errs := s.gain(gained)
	if len(s.backlog) == 0 && !s.dialed {
		s.dial()
	}
	if fewer {
		errs = append(errs, s.withdraw(want, hops, among(s.routes, some, known))...)
	}
	if len(errs)+len(stranded)+len(want.Leaving) == 0 {
		s.revision, s.hops = want.Revision, hops
	}
	return errs
}

// changed gives the prefixes whose routes may not be as wanted. If they are not known all are to be looked at.
func (s *session) changed(want desired.Session, hops nextHops) (some map[netip.Prefix]struct{}, known bool) {
	some, known = want.ChangedSince(s.revision)
	return some, known && hops == s.hops && len(s.backlog)+len(want.Leaving) == 0
}

// among yields all of the routes, or those to some prefixes where these alone are of interest.
func among[R any](routes map[netip.Prefix]R, some map[netip.Prefix]struct{}, only bool) iter.Seq2[netip.Prefix, R] {
	if !only {
		return maps.All(routes)
	}
	return func(yield func(netip.Prefix, R) bool) {
		for prefix := range some {
			if r, ok := routes[prefix]; ok && !yield(prefix, r) {
				return
			}
		}
	}
}

// leaves tells whether a route that routers may have is kept only until they have left it.
func leaves(prefix netip.Prefix, want desired.Session) bool {
	_, wanted := want.Routes[prefix]
	_, leaves := want.Leaving[prefix]
	return leaves && !wanted
}

// gain hands new routes over, or has that begun if they are many. The caller holds s.mu.
func (s *session) gain(gained map[netip.Prefix]route) []error {
	if len(gained) > s.burst {
		if s.backlog == nil {
			s.backlog = gained
			go s.fill()
		} else {
			maps.Copy(s.backlog, gained)
		}
		return nil
	}
	unannounced := tally{}
	for prefix, r := range gained {
		if err := s.add(prefix, r); err != nil {
			unannounced.add(prefix, err)
		}
	}
	return unannounced.errors(s.name, "announced")
}

// fill hands the backlog over, a few routes at a time, and then dials. What fails is told
// when the routes are applied again.
func (s *session) fill() {
	for s.fillSome() {
	}
}

// fillSome tells whether there may be more to do.
func (s *session) fillSome() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	left := max(s.burst/10, 1)
	for prefix, r := range s.backlog {
		if left--; left < 0 {
			return true
		}
		delete(s.backlog, prefix)
		if err := s.add(prefix, r); err != nil {
			s.revision = 0
			s.log.Error("a route is not announced; it is tried again", "prefix", prefix, "error", err)
		}
	}
	s.backlog = nil
	if !s.dialed {
		s.dial()
	}
	s.notify()
	return false
}

// dial begins to look for the router, once. Without a router it tells why, and another
// identity is waited for. The caller holds s.mu.
func (s *session) dial() {
	s.dialed = true
	switch {
	case s.identity.NoRouter != "":
		s.fail(s.identity.NoRouter)
	case s.identity.Passive: // the listener tells when the router has dialed, if it has not yet
		if s.early != nil {
			s.begin(s.early)
			s.early = nil
		}
	default:
		s.status.Phase = Active
		s.calls.Go(func() { s.call(s.ctx) })
	}
}

// withdraw takes back those routes that are not wanted any more, or that there cannot be any more.
func (s *session) withdraw(want desired.Session, hops nextHops, held iter.Seq2[netip.Prefix, route]) []error {
	unwithdrawn := tally{}
	for prefix, have := range held {
		attrs, ok := want.Routes[prefix]
		if ok && unroutable(prefix, route{attrs: attrs, nextHop: hops.of(prefix)}) == nil || leaves(prefix, want) {
			continue
		}
		if err := s.daemon.deleteRoute(prefix, have, s.identity); err != nil {
			unwithdrawn.add(prefix, err)
			continue
		}
		delete(s.routes, prefix)
		s.held[addr.FamilyOf(prefix.Addr())]--
		s.accounted = false
	}
	return unwithdrawn.errors(s.name, "withdrawn")
}

// add announces a route unless it is announced already.
func (s *session) add(prefix netip.Prefix, r route) error {
	have, ok := s.routes[prefix]
	if ok && have.equal(r) {
		return nil
	}
	if err := s.daemon.addRoute(prefix, r, s.identity); err != nil {
		return err
	}
	if !ok {
		s.held[addr.FamilyOf(prefix.Addr())]++
	}
	s.routes[prefix] = r
	s.accounted = false
	return nil
}

// drain announces the routes anew as ones about to go, and tells whether the peer has any.
func (s *session) drain() (bool, []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = 0
	failed := tally{}
	for prefix, r := range s.backlog {
		r.draining = true
		s.backlog[prefix] = r
	}
	for prefix, r := range s.routes {
		r.draining = true
		if err := s.add(prefix, r); err != nil {
			failed.add(prefix, err)
		}
	}
	return s.status.Phase == Established && len(s.routes) > 0, failed.errors(s.name, "drained")
}
