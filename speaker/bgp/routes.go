package bgp

import (
	"iter"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/apiutil"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// defaultBurst is how many new routes the server gets at once, some 10 ms. If more are new together, as when a
// process begins, it gets them in steps, so that routes that are new after them do not wait.
const defaultBurst = 500

// apply makes the routes those wanted, and starts the session unless that was done before: it then tries to
// come up until it is ended. New routes go before withdrawals. Leaving routes stay, draining, where they
// were announced. The errors are *PeerErrors.
//
// The server has all routes before it has a peer: it sends them in one go, followed by the End-of-RIB that lets a
// router drop what it kept over a restart.
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
	unroutable, gained := map[netip.Prefix]error{}, map[netip.Prefix]route{}
	for prefix, attrs := range among(want.Routes, some, known) {
		wanted := route{attrs: attrs, nextHop: hops.of(prefix)}
		if why := errUnroutable(prefix, wanted); why != nil {
			unroutable[prefix] = why
			continue
		}
		if have, ok := s.routes[prefix]; ok && have.equal(wanted) {
			continue
		}
		if _, late := s.backlog[prefix]; !late {
			gained[prefix] = wanted
		}
	}
	for prefix := range want.Leaving {
		if have, ok := s.routes[prefix]; ok && !have.draining && leaves(prefix, want) {
			have.draining = true
			gained[prefix] = have
		}
	}
	if !maps.Equal(unroutable, s.unroutable) {
		s.unroutable, s.accounted = unroutable, false
	}
	errs := s.gain(gained)
	if len(s.backlog) == 0 {
		s.start()
	}
	errs = append(errs, s.withdraw(want, hops, among(s.routes, some, known))...)
	if len(errs)+len(unroutable)+len(want.Leaving) == 0 {
		s.revision, s.hops = want.Revision, hops
	}
	return errs
}

// changed returns the prefixes of routes that may not be as wanted, if they are known.
func (s *session) changed(want desired.Session, hops nextHops) (some map[netip.Prefix]struct{}, known bool) {
	some, known = want.ChangedSince(s.revision)
	return some, known && hops == s.hops && len(s.backlog)+len(want.Leaving) == 0
}

// among yields all of the routes, or only those to some prefixes.
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

// leaves returns whether a route is kept only until routers have changed over from it.
func leaves(prefix netip.Prefix, want desired.Session) bool {
	_, wanted := want.Routes[prefix]
	_, leaves := want.Leaving[prefix]
	return leaves && !wanted
}

// gain adds new routes, or begins with that if they are many. The errors are *PeerErrors. The caller holds s.mu.
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

// fill adds the backlog, a few routes at a time, and then starts the session. The next Apply returns what fails.
func (s *session) fill() {
	for s.fillSome() {
	}
}

// fillSome returns whether there may be more to do.
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
	s.start()
	s.notify()
	return false
}

// start dials the router, or waits for its connection, once. Without a router it reports why: an Apply with
// another identity ends the session. The caller holds s.mu.
func (s *session) start() {
	if s.started {
		return
	}
	s.started = true
	switch {
	case s.identity.NoRouter != "":
		s.fail(s.identity.NoRouter)
	case s.identity.Passive: // the listener has its connection, or will have
		if s.early != nil {
			s.begin(s.early)
			s.early = nil
		}
	default:
		s.status.Phase = Active
		s.running.Go(s.dial)
	}
}

// withdraw withdraws those routes that are not wanted, or not possible, any more. The errors are *PeerErrors.
func (s *session) withdraw(want desired.Session, hops nextHops, held iter.Seq2[netip.Prefix, route]) []error {
	unwithdrawn := tally{}
	for prefix, have := range held {
		attrs, ok := want.Routes[prefix]
		if ok && errUnroutable(prefix, route{attrs: attrs, nextHop: hops.of(prefix)}) == nil || leaves(prefix, want) {
			continue
		}
		if err := s.daemon.deleteRoute(prefix, have, s.identity); err != nil {
			unwithdrawn.add(prefix, err)
			continue
		}
		delete(s.routes, prefix)
		s.counts[addr.FamilyOf(prefix.Addr())]--
		s.accounted = false
	}
	return unwithdrawn.errors(s.name, "withdrawn")
}

// add announces a route unless it is announced already. The error is that of GoBGP.
func (s *session) add(prefix netip.Prefix, r route) error {
	have, ok := s.routes[prefix]
	if ok && have.equal(r) {
		return nil
	}
	if err := s.daemon.addRoute(prefix, r, s.identity); err != nil {
		return err
	}
	if !ok {
		s.counts[addr.FamilyOf(prefix.Addr())]++
	}
	s.routes[prefix] = r
	s.accounted = false
	return nil
}

// drain announces all routes as draining, and returns whether the peer has any. The errors are *PeerErrors.
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

// gracefulShutdown is the community of routes that are about to go (RFC 8326).
const gracefulShutdown = 0xffff0000

// renderPath returns a path as GoBGP takes it, which adds our own ASN for an eBGP peer, and a local preference
// of 100 for an iBGP peer. The error is that of GoBGP's encoding.
func renderPath(prefix netip.Prefix, r route, id desired.Identity) (*api.Path, error) {
	prefix = prefix.Masked()
	attributes := []packet.PathAttributeInterface{packet.NewPathAttributeOrigin(packet.BGP_ORIGIN_ATTR_TYPE_IGP)}
	var nlri packet.AddrPrefixInterface
	if prefix.Addr().Is4() {
		nlri = packet.NewIPAddrPrefix(uint8(prefix.Bits()), prefix.Addr().String())
		attributes = append(attributes, packet.NewPathAttributeNextHop(r.nextHop.String()))
	} else {
		nlri = packet.NewIPv6AddrPrefix(uint8(prefix.Bits()), prefix.Addr().String())
		attributes = append(attributes, packet.NewPathAttributeMpReachNLRI(r.nextHop.String(), []packet.AddrPrefixInterface{nlri}))
	}
	if r.draining && !slices.Contains(r.attrs.Communities, gracefulShutdown) {
		r.attrs.Communities = append(slices.Clone(r.attrs.Communities), gracefulShutdown)
	}
	attributes = append(attributes, preferences(r, internal(id), id.MyASN)...)
	if len(r.attrs.Communities) != 0 {
		attributes = append(attributes, packet.NewPathAttributeCommunities(r.attrs.Communities))
	}
	if r.attrs.Bandwidth != 0 {
		attributes = append(attributes, packet.NewPathAttributeExtendedCommunities([]packet.ExtendedCommunityInterface{linkBandwidth(r.attrs.Bandwidth, id.MyASN)}))
	}
	if len(r.attrs.LargeCommunities) != 0 {
		var large []*packet.LargeCommunity
		for _, c := range r.attrs.LargeCommunities {
			large = append(large, packet.NewLargeCommunity(c.Global, c.Local1, c.Local2))
		}
		attributes = append(attributes, packet.NewPathAttributeLargeCommunities(large))
	}
	return apiutil.NewPath(nlri, false, attributes, time.Now())
}

// linkBandwidth returns the extended community of draft-ietf-idr-link-bandwidth for so many Mbit/s. It counts bytes
// a second, and has AS_TRANS for AS numbers of more than 16 bits.
func linkBandwidth(mbits, asn uint32) *packet.LinkBandwidthExtended {
	if asn > math.MaxUint16 {
		asn = packet.AS_TRANS
	}
	return packet.NewLinkBandwidthExtended(uint16(asn), float32(mbits)*1e6/8)
}

// preferences are the attributes by which routers choose among paths. A local preference is for iBGP peers alone
// (RFC 4271, 5.1.5), and prepending for eBGP peers: a router refuses a path with its own ASN.
//
// A draining route has the lowest local preference. Routers of another AS give it that themselves, by its
// community (RFC 8326, 4.1).
func preferences(r route, internal bool, asn uint32) []packet.PathAttributeInterface {
	var attributes []packet.PathAttributeInterface
	attrs := r.attrs
	switch {
	case internal && r.draining:
		attributes = append(attributes, packet.NewPathAttributeLocalPref(0))
	case internal && attrs.LocalPref != 0:
		attributes = append(attributes, packet.NewPathAttributeLocalPref(attrs.LocalPref))
	}
	if attrs.MED != nil {
		attributes = append(attributes, packet.NewPathAttributeMultiExitDisc(*attrs.MED))
	}
	if !internal && attrs.Prepend > 0 {
		segment := packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, slices.Repeat([]uint32{asn}, attrs.Prepend))
		attributes = append(attributes, packet.NewPathAttributeAsPath([]packet.AsPathParamInterface{segment}))
	}
	return attributes
}
