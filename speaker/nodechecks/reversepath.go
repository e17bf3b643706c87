package nodechecks

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
	"fairlead.dev/fairlead/speaker/report"
)

// filtered finds interfaces on which the kernel drops what routers send there for clients beyond the network, since they were told of
// addresses by a BGP session on it. The error says what could not be read.
func filtered(sessions map[string]bgp.State) ([]forwarding.Fault, error) {
	if len(sessions) == 0 {
		return nil, nil
	}
	snapshot, err := links.Read()
	if err != nil {
		return nil, fmt.Errorf("look for reverse path filters: %w", err)
	}
	towards := routersBy(sessions, snapshot)
	var own []netip.Addr
	for _, l := range snapshot.All() {
		for _, p := range l.Prefixes {
			if !p.Addr().IsLoopback() {
				own = append(own, p.Addr())
			}
		}
	}
	kernel, err := hostchecks.Read(snapshot, towards, own)
	var found []forwarding.Fault
	for _, l := range towards {
		if o, drops := kernel.Filters(l.Name); drops {
			found = append(found, forwarding.Fault{Reason: report.ReasonReversePathFiltered, Message: fmt.Sprintf(
				"this node drops what BGP routers on %s send to Services for clients beyond the network: %s", l.Name, o.Filter())})
		}
	}
	return found, err
}

// routersBy returns the links by which sessions are up that tell of IPv4 addresses, sorted. A session from an address of the loopback
// interface does not tell by which link the router's packets come.
func routersBy(sessions map[string]bgp.State, snapshot *links.Snapshot) []links.Link {
	on := func(l links.Link) bool {
		for _, s := range sessions {
			has := func(p netip.Prefix) bool { return p.Addr() == s.LocalAddress }
			if s.Phase == bgp.Established && s.IPv4 && s.Advertised > 0 && (s.LocalAddress.Zone() == l.Name || slices.ContainsFunc(l.Prefixes, has)) {
				return true
			}
		}
		return false
	}
	towards := slices.DeleteFunc(slices.Clone(snapshot.All()), func(l links.Link) bool { return l.Loopback || !on(l) })
	slices.SortFunc(towards, func(a, b links.Link) int { return cmp.Compare(a.Name, b.Name) })
	return towards
}
