package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// The reasons why an Established session leaves a whole family out. Another session or another address of
// the node ends that, and no other attempt.
var (
	errFamily     = errors.New("the router did not negotiate this address family on the session: activate it for this neighbor")
	errOneFamily  = errors.New("the session carries the family of peerAddress alone: set dualStackAddressFamily, or make a second BGPPeer for the router's address of this family")
	errUnextended = errors.New("the router takes no IPv6 next hop for IPv4 prefixes (RFC 8950), and an unnumbered session has no other: have it negotiate the extended next hop capability for this neighbor")
	errNoNextHop4 = errors.New("an IPv4 prefix on an IPv6 session needs an IPv4 address of this node as next hop, and it has none")
	errNoNextHop6 = errors.New("an IPv6 prefix on an IPv4 session needs an IPv6 address of this node as next hop, and it has none")
)

// tooLongError is why a prefix with too many communities for a message is not announced: GoBGP would send
// nothing, or end the process.
type tooLongError struct {
	prefix netip.Prefix
	octets int
}

// Error names the prefix and the octets of its communities.
func (e tooLongError) Error() string {
	return fmt.Sprintf("the communities of %v, of all BGPAdvertisements that announce it, take %d octets, and a message has room for %d: remove some, or announce it by fewer BGPAdvertisements",
		e.prefix, e.octets, view.MostCommunityOctets)
}

// errNotCarried returns why the session does not carry the family of the prefix.
func (s *session) errNotCarried(prefix netip.Prefix) error {
	switch family := addr.FamilyOf(prefix.Addr()); {
	case !carries(s.identity, family):
		return errOneFamily
	case s.status.unextended && family == addr.IPv4:
		return errUnextended
	}
	return errFamily
}

// errUnroutable returns why the server cannot be given a route; nil if it can.
func errUnroutable(prefix netip.Prefix, r route) error {
	octets := view.CommunityOctets(len(r.attrs.Communities), len(r.attrs.LargeCommunities))
	switch {
	case octets > view.MostCommunityOctets:
		return tooLongError{prefix, octets}
	case r.nextHop.IsValid():
		return nil
	case prefix.Addr().Is4():
		return errNoNextHop4
	}
	return errNoNextHop6
}

// Unannounced are the prefixes of one family that are wanted on a session and not announced to the peer.
type Unannounced struct {
	Family   addr.Family
	Prefixes int          // their number
	Example  netip.Prefix // the lowest of them
	Err      error        // the reason of Example
}

// String returns their number, one of them, and the reason.
func (u Unannounced) String() string { return u.not("announced") + ": " + u.Err.Error() }

func (u Unannounced) not(done string) string {
	if u.Prefixes == 1 {
		return fmt.Sprintf("%s is not %s", u.Example, done)
	}
	return fmt.Sprintf("%d prefixes, such as %s, are not %s", u.Prefixes, u.Example, done)
}

// tally collects prefixes by family. It does not depend on their order: what it reports changes only when they do.
type tally map[addr.Family]Unannounced

func (t tally) add(prefix netip.Prefix, err error) {
	u := t[addr.FamilyOf(prefix.Addr())]
	if u.Prefixes == 0 || prefix.Compare(u.Example) < 0 {
		u.Example, u.Err = prefix, err
	}
	u.Family = addr.FamilyOf(prefix.Addr())
	u.Prefixes++
	t[u.Family] = u
}

func (t tally) list() []Unannounced {
	var all []Unannounced
	for _, family := range addr.Families() {
		if u, ok := t[family]; ok {
			all = append(all, u)
		}
	}
	return all
}

// errors returns one *PeerError a family: that so many prefixes are not done.
func (t tally) errors(peer, done string) []error {
	var errs []error
	for _, u := range t.list() {
		errs = append(errs, &PeerError{Peer: peer, Err: fmt.Errorf("%s: %w", u.not(done), u.Err)})
	}
	return errs
}

// account counts the routes that are announced and those that this session cannot carry, unless nothing has
// changed. It looks at single routes only if there are some that it cannot carry.
func (s *session) account() {
	if s.accounted {
		return
	}
	s.accounted = true
	cannot, announced := tally{}, 0
	for family, n := range s.counts {
		if s.status.carries(family) {
			announced += n
		}
	}
	if announced < len(s.routes) {
		for prefix := range s.routes {
			if !s.status.carries(addr.FamilyOf(prefix.Addr())) {
				cannot.add(prefix, s.errNotCarried(prefix))
			}
		}
	}
	for prefix, reason := range s.unroutable {
		if !s.status.carries(addr.FamilyOf(prefix.Addr())) {
			reason = s.errNotCarried(prefix)
		}
		cannot.add(prefix, reason)
	}
	s.status.Advertised, s.status.Prefixes, s.status.Unannounced = announced, s.list(announced), cannot.list()
	s.logUnannounced()
}

// pending counts the routes that are wanted and not announced.
func (s *session) pending() int {
	n := len(s.routes) + len(s.unroutable) - s.status.Advertised
	for prefix := range s.backlog {
		if _, announced := s.routes[prefix]; !announced {
			n++
		}
	}
	return n
}

const mostListed = 100

// list returns the announced prefixes, of which there are so many, or nil if these are too many to list.
func (s *session) list(announced int) []netip.Prefix {
	if announced > mostListed {
		return nil
	}
	prefixes := make([]netip.Prefix, 0, announced)
	for prefix := range s.routes {
		if s.status.carries(addr.FamilyOf(prefix.Addr())) {
			prefixes = append(prefixes, prefix)
		}
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return prefixes
}

// logUnannounced logs the families that a session cannot carry when that begins, when the reason changes, and
// when it ends, but neither the number of prefixes nor a session that comes back as it was.
func (s *session) logUnannounced() {
	now := map[addr.Family]error{}
	for _, u := range s.status.Unannounced {
		now[u.Family] = u.Err
		if !errors.Is(u.Err, s.logged[u.Family]) {
			s.log.Warn("prefixes are not announced on a session that is up",
				"family", u.Family.String(), "prefixes", u.Prefixes, "example", u.Example, "reason", u.Err)
		}
	}
	for family := range s.logged {
		if now[family] == nil {
			s.log.Info("all prefixes of a family are announced", "family", family.String())
		}
	}
	s.logged = now
}
