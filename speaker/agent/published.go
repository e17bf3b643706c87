package agent

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

// published is what this node last handed to pulse and to the routers.
type published struct {
	claims map[netip.Addr]desired.Candidacy // replaced and never changed: pulse's client keeps it
	// sessions have routes and aggregates of their own, which change in place.
	sessions map[string]desired.Session
	delta    desired.Delta[netip.Prefix] // of the routes of all sessions
	// wanted is the revision of desired.Node.Announced that was published; 0: publish all of it again,
	// since something was missing or an applier failed.
	wanted uint64
	// partial: addresses were left out, if only those of a family that the host lacks.
	partial bool
}

// withdraw takes away what is not wanted any more. It returns the routes that go, and whether anything
// does. A session that is wanted with another identity stays as it is: BGP changes it over, and keeps
// its routes where that is possible.
func (p *published) withdraw(want desired.Node) (gone []leaving, fewer bool) {
	unwanted := func(address netip.Addr) bool { _, ok := want.Layer2[address]; return !ok }
	for address := range p.claims {
		if unwanted(address) {
			fewer = true
			p.claims = maps.Clone(p.claims)
			maps.DeleteFunc(p.claims, func(address netip.Addr, _ desired.Candidacy) bool { return unwanted(address) })
			break
		}
	}
	changed, known := want.Announced.ChangedSince(p.wanted)
	removed := map[netip.Prefix]struct{}{}
	for name, session := range p.sessions {
		wanted, ok := want.BGP[name]
		if !ok {
			fewer = true
			delete(p.sessions, name)
		}
		some := maps.Keys(session.Routes)
		if known && len(session.Aggregates)+len(wanted.Aggregates) == 0 {
			some = maps.Keys(changed)
		}
		stays := kept(session, wanted)
		for prefix := range some {
			attrs, there := session.Routes[prefix]
			if !there || stays(prefix) {
				continue
			}
			gone = append(gone, leaving{peer: name, identity: session.Identity, prefix: prefix, attrs: attrs, addresses: session.Addresses(prefix)})
			removed[prefix] = struct{}{}
			delete(session.Routes, prefix)
		}
	}
	if len(removed) > 0 {
		fewer = true
		p.delta.Advance(removed)
	}
	return gone, fewer
}

// announce takes over what is wanted and has its forwarding in the kernel, and returns the addresses
// that have not, sorted.
func (p *published) announce(want desired.Node, lacking outcome.Missing) (unable []netip.Addr) {
	missing := missingAddresses(want.Forwarding, lacking)
	p.claims = want.Layer2
	if len(missing) > 0 {
		p.claims = maps.Clone(want.Layer2)
	}
	for address := range missing {
		if _, wanted := want.Layer2[address]; wanted {
			delete(p.claims, address)
			unable = append(unable, address)
		}
	}
	slices.SortFunc(unable, netip.Addr.Compare)
	if changed, known := want.Announced.ChangedSince(p.wanted); known && !p.partial && len(missing) == 0 {
		for name, session := range p.sessions {
			for prefix := range changed {
				follow(session.Routes, want.BGP[name].Routes, prefix)
				follow(session.Aggregates, want.BGP[name].Aggregates, prefix)
			}
		}
		p.delta.Advance(changed)
		return unable
	}
	p.sessions = make(map[string]desired.Session, len(want.BGP))
	for name, session := range want.BGP {
		p.sessions[name] = without(session, missing)
	}
	p.delta.Restart()
	p.partial = len(missing) > 0
	return unable
}

// follow makes one entry of a map what it is in another one.
func follow[K comparable, V any](m, other map[K]V, key K) {
	if value, ok := other[key]; ok {
		m[key] = value
	} else {
		delete(m, key)
	}
}

// kept reports which routes of a session go on while the new ones are not announced yet:
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

// without copies a session but for the routes that are for missing addresses alone.
func without(session desired.Session, missing map[netip.Addr]bool) desired.Session {
	part := desired.Session{Identity: session.Identity, Routes: maps.Clone(session.Routes), Aggregates: maps.Clone(session.Aggregates)}
	if len(missing) == 0 {
		return part
	}
	for prefix := range session.Routes {
		within := slices.DeleteFunc(slices.Clone(session.Addresses(prefix)), func(address netip.Addr) bool { return missing[address] })
		if len(within) == 0 {
			delete(part.Routes, prefix)
			delete(part.Aggregates, prefix)
		} else if !prefix.IsSingleIP() {
			part.Aggregates[prefix] = within
		}
	}
	return part
}

// missingAddresses are the VIPs of which not every port is in the kernel. A port that only
// lacks its newest endpoints counts as there: to withdraw its address would be worse.
func missingAddresses(want desired.Forwarding, lacking outcome.Missing) map[netip.Addr]bool {
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

// heldUp returns the missing ports without those that are put off and hold up no address, since they have none or it
// is announced already: a Service that gets a thousand ports more goes on with those that it had.
func (p *published) heldUp(want desired.Forwarding, missing outcome.Missing, putOff map[desired.PortKey]struct{}) outcome.Missing {
	if len(putOff) == 0 {
		return missing
	}
	held, has := maps.Clone(missing), map[netip.Addr]bool{}
	maps.DeleteFunc(held, func(key desired.PortKey, _ *desired.Port) bool {
		if _, is := putOff[key]; !is {
			return false
		}
		return !slices.ContainsFunc(want.Ports[key].VIPs, func(address netip.Addr) bool {
			there, known := has[address]
			if !known {
				there = p.has(address)
				has[address] = there
			}
			return !there
		})
	})
	return held
}

// has reports whether the address is announced.
func (p *published) has(address netip.Addr) bool {
	if _, claimed := p.claims[address]; claimed {
		return true
	}
	for _, session := range p.sessions {
		if _, routed := session.Routes[addr.HostPrefix(address)]; routed {
			return true
		}
		for _, within := range session.Aggregates {
			if slices.Contains(within, address) {
				return true
			}
		}
	}
	return false
}

// lacksFamily reports whether a family of which ports are wanted has none in the kernel,
// as when its table could not be written at all.
func lacksFamily(want desired.Forwarding, missing outcome.Missing) bool {
	for family, lacking := range missing.Of(want) {
		if lacking == want.Count[family] {
			return true
		}
	}
	return false
}
