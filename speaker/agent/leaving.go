package agent

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
)

// leaving is a route that is withdrawn though this node still serves its addresses, as when its
// BGPPeer is deleted or the node is excluded from load balancing. Routers are asked to prefer other paths
// before it goes (RFC 8326), so that no packet is under way by it then.
type leaving struct {
	peer      string
	identity  desired.Identity
	bfd       *desired.BFD // nil: there is none beside the session
	prefix    netip.Prefix
	attrs     desired.RouteAttrs
	addresses []netip.Addr // that it is for
	until     time.Time
}

// goesOn reports whether routers may still use the route while the node wants this. A wanted session with the
// same router, under another name or with another identity, ends the session that the route has.
func (l leaving) goesOn(want desired.Node, serves func(netip.Addr) bool, now time.Time) bool {
	if !now.Before(l.until) || !slices.ContainsFunc(l.addresses, serves) {
		return false
	}
	if session, wanted := want.BGP[l.peer]; wanted {
		_, again := session.Routes[l.prefix]
		return !again && session.Identity == l.identity
	}
	for _, other := range want.BGP {
		if other.Identity.Neighbour().MayBe(l.identity.Neighbour()) {
			return false
		}
	}
	return true
}

// withLeaving returns the sessions to publish, with BFD and the unnumbered interfaces: those that are announced and
// those that go. BFD stays as long as its session does, since routers may take its end for a failure.
func withLeaving(p *published, want desired.Node, routes []leaving) (map[string]desired.Session, map[string]desired.BFD, []string) {
	sessions := make(map[string]desired.Session, len(p.sessions))
	for name, session := range p.sessions {
		session.Delta = p.delta
		sessions[name] = session
	}
	if len(routes) == 0 {
		return sessions, want.BFD, want.Unnumbered
	}
	beside, unnumbered := maps.Clone(want.BFD), slices.Clone(want.Unnumbered)
	if beside == nil {
		beside = map[string]desired.BFD{}
	}
	for _, l := range routes {
		session, published := sessions[l.peer]
		if !published {
			session.Identity = l.identity
			if l.bfd != nil {
				beside[l.peer] = *l.bfd
			}
			if over := l.identity.Interface; over != "" && !slices.Contains(unnumbered, over) {
				unnumbered = append(unnumbered, over)
			}
		}
		if session.Leaving == nil {
			session.Leaving = map[netip.Prefix]desired.RouteAttrs{}
		}
		session.Leaving[l.prefix] = l.attrs
		sessions[l.peer] = session
	}
	slices.Sort(unnumbered)
	return sessions, beside, unnumbered
}
