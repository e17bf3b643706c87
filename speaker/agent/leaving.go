package agent

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
)

// leaving is a route that is announced no more though this node still serves what it is for, as when its
// BGPPeer is deleted or the node is excluded from load balancing. Routers are asked to prefer other paths
// before it goes (RFC 8326), so that nothing is on its way by it then.
type leaving struct {
	peer      string
	identity  desired.Identity
	bfd       *desired.BFD // nil: there is none beside the session
	prefix    netip.Prefix
	attrs     desired.RouteAttrs
	addresses []netip.Addr // that it is for
	until     time.Time
}

// parting are those of routes that are announced no more which still lead to what is served, with BFD beside
// their sessions.
func parting(gone []leaving, bfd map[string]desired.BFD, serves func(netip.Addr) bool, until time.Time) []leaving {
	gone = slices.DeleteFunc(gone, func(l leaving) bool { return !l.works(serves) })
	for i := range gone {
		gone[i].until = until
		if beside, ok := bfd[gone[i].peer]; ok {
			gone[i].bfd = &beside
		}
	}
	return gone
}

func (l leaving) works(serves func(netip.Addr) bool) bool {
	return slices.ContainsFunc(l.addresses, serves)
}

// goesOn tells whether routers may still use the route while the node wants this. A session with the same router
// that is wanted under another name, or is another, ends the one that it has.
func (l leaving) goesOn(want desired.Node, serves func(netip.Addr) bool, now time.Time) bool {
	if !now.Before(l.until) || !l.works(serves) {
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

// withLeaving are the sessions that are told, and BFD and the interfaces with them: those that are announced and
// those that go. BFD stays beside a session as long as that does, since routers may take its end for a failure.
func withLeaving(say announced, want desired.Node, routes []leaving) (map[string]desired.Session, map[string]desired.BFD, []string) {
	if len(routes) == 0 {
		return say.sessions, want.BFD, want.Unnumbered
	}
	sessions, beside, unnumbered := maps.Clone(say.sessions), maps.Clone(want.BFD), slices.Clone(want.Unnumbered)
	if beside == nil {
		beside = map[string]desired.BFD{}
	}
	for _, l := range routes {
		session, told := sessions[l.peer]
		if !told {
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
