package agent

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// announced is what this node told the world in the last pass.
type announced struct {
	claims map[netip.Addr]desired.Claim // for others to look at later: another is another map
	// sessions have routes and aggregates of their own, which change in place.
	sessions map[string]desired.Session
	// at is the state of the decision (desired.Node.Announcing) that the sessions are of but for
	// what was withdrawn since; 0 for none.
	at      uint64
	changes uint64 // how often a session became another
}

// withdraw takes away what is not wanted any more, and tells whether that is anything, and of what
// routes. A session that is wanted with another identity stays
// as it is: BGP changes over by itself, with the routes kept where that is possible.
func (a *announced) withdraw(want desired.Node) (gone []leaving, fewer bool) {
	unwanted := func(address netip.Addr) bool { _, ok := want.Layer2[address]; return !ok }
	for address := range a.claims {
		if unwanted(address) {
			fewer = true
			a.claims = maps.Clone(a.claims)
			maps.DeleteFunc(a.claims, func(address netip.Addr, _ desired.Claim) bool { return unwanted(address) })
			break
		}
	}
	for name, session := range a.sessions {
		wanted, ok := want.BGP[name]
		removed := map[netip.Prefix]struct{}{}
		for prefix := range a.unwanted(session, wanted, want) {
			gone = append(gone, leaving{peer: name, identity: session.Identity, prefix: prefix, attrs: session.Routes[prefix], addresses: session.Addresses(prefix)})
			removed[prefix] = struct{}{}
		}
		fewer = fewer || !ok || len(removed) > 0
		if !ok {
			delete(a.sessions, name)
			continue
		}
		for prefix := range removed {
			delete(session.Routes, prefix)
		}
		a.change(name, session, removed)
	}
	return gone, fewer
}

// knows tells whether what is wanted differs from what was announced in want.Rerouted alone.
func (a *announced) knows(want desired.Node) bool { return a.at != 0 && a.at == want.Since }

// unwanted yields those routes of a session that are to go now.
func (a *announced) unwanted(session, wanted desired.Session, want desired.Node) iter.Seq[netip.Prefix] {
	some := maps.Keys(session.Routes)
	if a.knows(want) && len(session.Aggregates)+len(wanted.Aggregates) == 0 {
		some = maps.Keys(want.Rerouted)
	}
	stays := kept(session, wanted)
	return func(yield func(netip.Prefix) bool) {
		for prefix := range some {
			if _, there := session.Routes[prefix]; there && !stays(prefix) && !yield(prefix) {
				return
			}
		}
	}
}

// change makes a session another one, if these are routes that did.
func (a *announced) change(name string, session desired.Session, changed map[netip.Prefix]struct{}) {
	if len(changed) == 0 {
		return
	}
	a.changes++
	session.Revision, session.Since, session.Changed = a.changes, session.Revision, changed
	a.sessions[name] = session
}

// announce takes over what is wanted and may be announced because its forwarding is in the kernel,
// and gives the addresses for which it is not.
func (a *announced) announce(want desired.Node, lacking desired.Missing) (unable []netip.Addr) {
	missing := missingAddresses(want.Forwarding, lacking)
	a.claims = maps.Clone(want.Layer2)
	maps.DeleteFunc(a.claims, func(address netip.Addr, _ desired.Claim) bool { return missing[address] })
	switch {
	case len(missing) > 0 || !a.knows(want):
		sessions := make(map[string]desired.Session, len(want.BGP))
		for name, session := range want.BGP {
			session = without(session, missing)
			a.changes++
			session.Revision = a.changes
			sessions[name] = session
		}
		a.sessions = sessions
	default:
		for name, session := range want.BGP {
			a.reroute(name, session, want.Rerouted)
		}
	}
	if a.at = want.Announcing; len(missing) > 0 {
		a.at = 0
	}
	for address := range want.Layer2 {
		if missing[address] {
			unable = append(unable, address)
		}
	}
	slices.SortFunc(unable, netip.Addr.Compare)
	return unable
}

// reroute takes over some routes of a session.
func (a *announced) reroute(name string, wanted desired.Session, some map[netip.Prefix]struct{}) {
	session, changed := a.sessions[name], map[netip.Prefix]struct{}{}
	for prefix := range some {
		attrs, ok := wanted.Routes[prefix]
		have, had := session.Routes[prefix]
		if within := wanted.Aggregates[prefix]; len(within) > 0 {
			session.Aggregates[prefix] = within
		} else {
			delete(session.Aggregates, prefix)
		}
		if ok == had && have.Equal(attrs) {
			continue
		}
		changed[prefix] = struct{}{}
		if session.Routes[prefix] = attrs; !ok {
			delete(session.Routes, prefix)
		}
	}
	a.change(name, session, changed)
}

// kept tells which routes of a session go on while the new ones are not announced yet:
// those for an address that is still to be announced, be it by another prefix, as when
// the length of aggregates is changed. The forwarding of that address stays.
func kept(session, wanted desired.Session) func(netip.Prefix) bool {
	if len(session.Aggregates)+len(wanted.Aggregates) == 0 {
		return func(prefix netip.Prefix) bool { _, ok := wanted.Routes[prefix]; return ok }
	}
	addresses := map[netip.Addr]bool{}
	for prefix := range wanted.Routes {
		for _, address := range wanted.Addresses(prefix) {
			addresses[address] = true
		}
	}
	return func(prefix netip.Prefix) bool {
		return slices.ContainsFunc(session.Addresses(prefix), func(address netip.Addr) bool { return addresses[address] })
	}
}

// without is a session that announces none of the missing addresses: no route that would
// be for these alone.
func without(session desired.Session, missing map[netip.Addr]bool) desired.Session {
	part := desired.Session{Identity: session.Identity, Routes: maps.Clone(session.Routes), Aggregates: maps.Clone(session.Aggregates)}
	if part.Aggregates == nil {
		part.Aggregates = map[netip.Prefix][]netip.Addr{}
	}
	if part.Routes == nil {
		part.Routes = map[netip.Prefix]desired.RouteAttrs{}
	}
	if len(missing) == 0 {
		return part
	}
	part.Aggregates = map[netip.Prefix][]netip.Addr{}
	for prefix, within := range session.Aggregates {
		within = slices.DeleteFunc(slices.Clone(within), func(address netip.Addr) bool { return missing[address] })
		if len(within) > 0 {
			part.Aggregates[prefix] = within
		} else {
			delete(part.Routes, prefix)
		}
	}
	maps.DeleteFunc(part.Routes, func(prefix netip.Prefix, _ desired.RouteAttrs) bool {
		return prefix.IsSingleIP() && missing[prefix.Addr()]
	})
	return part
}

// missingAddresses are the VIPs of which not every port is in the kernel. One that has
// not got its newest endpoints is there: to withdraw its address would be worse.
func missingAddresses(want desired.Forwarding, lacking desired.Missing) map[netip.Addr]bool {
	missing := map[netip.Addr]bool{}
	for key, in := range lacking {
		port := want.Ports[key]
		for _, address := range port.VIPs {
			if in.Port != port.Port || !slices.Contains(in.VIPs, address) {
				missing[address] = true
			}
		}
	}
	return missing
}

// lacksFamily tells whether a family of which ports are wanted has none in the kernel,
// as when its table could not be written at all.
func lacksFamily(want desired.Forwarding, missing desired.Missing) bool {
	if len(missing) == 0 {
		return false
	}
	lacks, has := map[addr.Family]bool{}, map[addr.Family]bool{}
	for key := range want.Ports {
		if _, lacking := missing[key]; lacking {
			lacks[key.Family] = true
		} else {
			has[key.Family] = true
		}
	}
	for family := range lacks {
		if !has[family] {
			return true
		}
	}
	return false
}
