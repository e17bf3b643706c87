package agent

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// within is the part of what was announced that is still wanted, and whether
// anything is missing from it. A session that is wanted with another identity stays
// as it is: BGP changes over by itself, with the routes kept where that is possible.
func (a announced) within(want desired.Node) (announced, bool) {
	remaining := announced{claims: maps.Clone(a.claims), sessions: map[string]desired.Session{}}
	maps.DeleteFunc(remaining.claims, func(address netip.Addr, _ desired.Claim) bool {
		_, ok := want.Layer2[address]
		return !ok
	})
	fewer := len(remaining.claims) < len(a.claims)
	for name, session := range a.sessions {
		wanted, ok := want.BGP[name]
		if !ok {
			fewer = true
			continue
		}
		routes := maps.Clone(session.Routes)
		stays := kept(session, wanted)
		maps.DeleteFunc(routes, func(prefix netip.Prefix, _ desired.RouteAttrs) bool { return !stays(prefix) })
		fewer = fewer || len(routes) < len(session.Routes)
		remaining.sessions[name] = desired.Session{Identity: session.Identity, Routes: routes, Aggregates: session.Aggregates}
	}
	return remaining, fewer
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

// serveable is the part of want that may be announced because its forwarding is in
// the kernel, and the addresses for which it is not.
func serveable(want desired.Node, lacking desired.Missing) (announced, []netip.Addr) {
	missing := missingAddresses(want.Forwarding, lacking)
	served := announced{claims: maps.Clone(want.Layer2), sessions: map[string]desired.Session{}}
	maps.DeleteFunc(served.claims, func(address netip.Addr, _ desired.Claim) bool { return missing[address] })
	for name, session := range want.BGP {
		served.sessions[name] = without(session, missing)
	}
	var unable []netip.Addr
	for address := range want.Layer2 {
		if missing[address] {
			unable = append(unable, address)
		}
	}
	slices.SortFunc(unable, netip.Addr.Compare)
	return served, unable
}

// without is a session that announces none of the missing addresses: no route that would
// be for these alone.
func without(session desired.Session, missing map[netip.Addr]bool) desired.Session {
	part := desired.Session{Identity: session.Identity, Routes: maps.Clone(session.Routes), Aggregates: maps.Clone(session.Aggregates)}
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
