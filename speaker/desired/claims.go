package desired

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Reasons of Services that do not get all that they ask for beside their ClusterIPs.
const (
	ReasonClusterIPTaken    = "ClusterIPTaken"    // an external address is the ClusterIP of another Service
	ReasonLifelineTaken     = "LifelineTaken"     // what it asks for keeps the cluster alive
	ReasonExternalIPRefused = "ExternalIPRefused" // the Service may not have one of its spec.externalIPs
	ReasonVIPRefused        = "VIPRefused"        // no load balancer can have given it an address that its status has
)

// IsRefusal reports whether the reason is one of these.
func IsRefusal(reason string) bool {
	switch reason {
	case ReasonClusterIPTaken, ReasonLifelineTaken, ReasonExternalIPRefused, ReasonVIPRefused, view.ReasonTooLarge, ReasonEndpointOnTwoNodes, ReasonEndpointReadyAndNot:
		return true
	}
	return false
}

// ExternalIPs says which spec.externalIPs are forwarded.
type ExternalIPs uint8

const (
	// AllExternalIPs are all that no other rule refuses.
	AllExternalIPs ExternalIPs = iota
	// PoolExternalIPs are those that the namespace of the Service has from an IPAddressPool, and those that
	// nothing has, of a pool that gives its addresses to any Service, any number of them, at any time.
	PoolExternalIPs
	// ListedExternalIPs are those of Options.ExternalIPCIDRs.
	ListedExternalIPs
	// NoExternalIPs are none.
	NoExternalIPs
)

// claims are the addresses that Services ask for beside their ClusterIPs: all that is written into
// spec.externalIPs, by users, and into a status. Packets to a ClusterIP are for its Service alone, even if others
// list it: else a user with the right to create Services could take over the DNS of the whole cluster
// (CVE-2020-8554). So are those that keep the cluster alive for nodes, routers and API servers.
type claims struct {
	options  Options
	services map[view.Ref]*view.Service // as of the last decision
	internal view.Index                 // by ClusterIP: one, or more while one replaces another
	external view.Index                 // by ExternalIP
	given    view.Index                 // by VIP
	reserved map[view.Ref][]netip.Addr  // what reservations hold
	holders  view.Index                 // the reservations by address

	lifelines  lifelines
	own        []uint16     // no NodePort of this node is one of these
	pools      []*view.Pool // oldest first
	configured bool         // the pools are known
	lost       map[view.Ref][]problem.Problem
}

func newClaims(o Options) claims {
	return claims{
		options: o, services: map[view.Ref]*view.Service{}, internal: view.Index{}, external: view.Index{}, given: view.Index{},
		reserved: map[view.Ref][]netip.Addr{}, holders: view.Index{}, lost: map[view.Ref][]problem.Problem{},
	}
}

// update takes over a Service; nil: it is gone. It adds to again the Services that may get
// other addresses by that.
func (c *claims) update(ref view.Ref, now *view.Service, again map[view.Ref]struct{}) {
	before := c.services[ref]
	if before == now {
		return
	}
	if c.services[ref] = now; now == nil {
		delete(c.services, ref)
	}
	none := &view.Service{}
	had, has := cmp.Or(before, none), cmp.Or(now, none)
	exchange(c.external, ref, had.ExternalIPs, has.ExternalIPs)
	if !slices.Equal(had.ClusterIPs, has.ClusterIPs) {
		exchange(c.internal, ref, had.ClusterIPs, has.ClusterIPs)
		c.ask(again, had.ClusterIPs, has.ClusterIPs)
	}
	if !slices.Equal(had.VIPs, has.VIPs) || c.allocates(had) != c.allocates(has) {
		exchange(c.given, ref, had.VIPs, has.VIPs)
		c.ask(again, had.VIPs, has.VIPs)
	} else if len(c.external) > 0 && !slices.Equal(had.Ports, has.Ports) {
		c.ask(again, slices.DeleteFunc(slices.Clone(has.VIPs), func(a netip.Addr) bool { return len(c.external[a]) == 0 }))
	}
}

// updateReservation takes over what a reservation holds; nil: it is gone.
func (c *claims) updateReservation(ref view.Ref, now *view.Reservation, again map[view.Ref]struct{}) {
	had, has := c.reserved[ref], []netip.Addr(nil)
	if now != nil {
		has = now.Held
	}
	if slices.Equal(had, has) {
		return
	}
	exchange(c.holders, ref, had, has)
	c.ask(again, had, has)
	if c.reserved[ref] = has; len(has) == 0 {
		delete(c.reserved, ref)
	}
}

// heldAnew are the reservations that may have changed since the last decision.
func (c *claims) heldAnew(cluster *view.Cluster, known bool) map[view.Ref]struct{} {
	if known {
		return cluster.Reserved
	}
	all := make(map[view.Ref]struct{}, len(cluster.Reservations))
	for ref := range cluster.Reservations {
		all[ref] = struct{}{}
	}
	for ref := range c.reserved {
		all[ref] = struct{}{}
	}
	return all
}

func exchange(by view.Index, ref view.Ref, had, has []netip.Addr) {
	if slices.Equal(had, has) {
		return
	}
	for _, a := range had {
		by.Remove(a, ref)
	}
	for _, a := range has {
		by.Add(a, ref)
	}
}

// ask adds to again the Services that ask for the addresses.
func (c *claims) ask(again map[view.Ref]struct{}, addresses ...[]netip.Addr) {
	for _, a := range slices.Concat(addresses...) {
		for _, ref := range slices.Concat(c.external[a], c.given[a]) {
			again[ref] = struct{}{}
		}
	}
}

// updateOthers takes over all but Services and reservations, and reports whether all Services must be decided again.
func (c *claims) updateOthers(cluster *view.Cluster, again map[view.Ref]struct{}) bool {
	lines, own := lifelinesOf(cluster, c.options)
	c.ask(again, slices.Collect(maps.Keys(lines.differ(c.lifelines))))
	if pools := cluster.PoolsByAge(); !slices.Equal(pools, c.pools) {
		c.pools = pools
		c.ask(again, slices.Collect(maps.Keys(c.external)), slices.DeleteFunc(slices.Collect(maps.Keys(c.given)), func(a netip.Addr) bool { return !lines.needsPool(a) }))
	}
	everything := cluster.Configured != c.configured || !slices.Equal(own, c.own)
	c.lifelines, c.own, c.configured = lines, own, cluster.Configured
	return everything
}

// allocates reports whether the addresses in the status of a Service come from Fairlead.
func (c *claims) allocates(s *view.Service) bool {
	return s.Type == view.LoadBalancer && c.options.Classes.Serves(s.Class)
}

// needsPool reports whether an address is a VIP only if a pool has it.
func (l lifelines) needsPool(a netip.Addr) bool { return l[a].node || a.IsLinkLocalUnicast() }

// granted is a Service without the addresses and NodePorts that it does not get, of which it notes the problems.
// The ports of an address that lifelines take are left to portsOf.
func (c *claims) granted(s *view.Service) *view.Service {
	told := notes{}
	without := *s
	without.ExternalIPs = c.grant(s, s.ExternalIPs, "spec.externalIPs", c.refusesExternalIP, told)
	for _, a := range without.ExternalIPs {
		if first, port := c.outranks(s, a); port > 0 {
			told.add(ReasonExternalIPRefused, "spec.externalIPs: port %d of %s is Service %s's, to which a load balancer gave the address: choose another port, or take the address out", port, a, first)
		}
	}
	without.VIPs = c.grant(s, s.VIPs, "status.loadBalancer.ingress", c.refusesVIP, told)
	for i, p := range s.Ports {
		if c.takesPort(p.NodePort) {
			without.Ports = slices.Clone(without.Ports)
			without.Ports[i].NodePort = 0
			told.add(ReasonLifelineTaken, "spec.ports: nodePort %d is a port of the node's own: choose another", p.NodePort)
		}
	}
	if c.takesPort(s.HealthCheckPort) {
		without.HealthCheckPort = 0
		told.add(ReasonLifelineTaken, "spec.healthCheckNodePort: %d is a port of the node's own: choose another", s.HealthCheckPort)
	}
	for reason, texts := range told {
		c.lost[s.Ref] = append(c.lost[s.Ref], problem.New(s.Object(), reason, "%s", problem.List(texts, "; ")))
	}
	return &without
}

// outranks returns the other Service that has an address from a load balancer, and a port of this one there; 0: there
// is none.
func (c *claims) outranks(s *view.Service, a netip.Addr) (first view.Ref, port uint16) {
	if slices.Contains(s.VIPs, a) {
		return first, 0
	}
	for _, ref := range c.given[a] {
		t := c.services[ref]
		for _, p := range s.Ports {
			same := func(o view.ServicePort) bool { return o.Port == p.Port && o.Protocol == p.Protocol }
			if reason, _ := c.refusesVIP(t, a); reason == "" && slices.ContainsFunc(t.Ports, same) {
				return ref, p.Port
			}
		}
	}
	return first, 0
}

// takesPort reports whether the port is one of this node's own.
func (c *claims) takesPort(port uint16) bool {
	_, is := slices.BinarySearch(c.own, port)
	return is
}

// grant returns the addresses that are not refused.
func (c *claims) grant(s *view.Service, asked []netip.Addr, field string, refuses func(*view.Service, netip.Addr) (reason, why string), told notes) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(asked), func(a netip.Addr) bool {
		line, at := c.lifelines[a], -1
		if len(line.ports) > 0 {
			at = slices.IndexFunc(s.Ports, func(p view.ServicePort) bool { return c.lifelines.takes(a, p.Port) })
		}
		if at >= 0 {
			told.add(ReasonLifelineTaken, "%s: port %d of %s, which %s has, keeps the cluster alive and leads there: choose another port, or take the address out",
				field, s.Ports[at].Port, a, line.of)
		}
		reason, why := refuses(s, a)
		if why != "" && at < 0 {
			told.add(reason, "%s: %s %s", field, a, why)
		}
		return reason != ""
	})
}

// refusesVIP returns why a Service does not get an address that its status has, "" if it does. Of its own
// ClusterIP there is nothing to say.
func (c *claims) refusesVIP(s *view.Service, a netip.Addr) (reason, why string) {
	if of := c.internal[a]; len(of) > 0 {
		return c.refusesClusterIP(s, of)
	}
	ours := c.allocates(s)
	switch {
	case !addr.Reachable(a):
		return ReasonVIPRefused, "is no address that other machines can reach: no load balancer can have given it"
	case c.lifelines.needsPool(a) && (!ours || c.configured && view.PoolOf(c.pools, a) == nil):
		return ReasonVIPRefused, "is the address of a node, or a link-local one, and no IPAddressPool has given it"
	case ours:
		return "", ""
	}
	if own, others := c.haveIt(a, s.Namespace, c.allocates); others && !own {
		return ReasonVIPRefused, "is given to another namespace"
	}
	return "", ""
}

// refusesExternalIP is refusesVIP of an address in spec.externalIPs.
func (c *claims) refusesExternalIP(s *view.Service, a netip.Addr) (reason, why string) {
	if of := c.internal[a]; len(of) > 0 {
		return c.refusesClusterIP(s, of)
	}
	own, others := c.haveIt(a, s.Namespace, func(t *view.Service) bool { reason, _ := c.refusesVIP(t, a); return reason == "" })
	if own && c.options.ExternalIPs != NoExternalIPs {
		return "", ""
	}
	switch {
	case others:
		why = "is given to another namespace: take it out"
	case !addr.Reachable(a):
		why = "is no address that other machines can reach: take it out"
	default:
		why = c.notAdmitted(a)
	}
	if why == "" {
		return "", ""
	}
	return ReasonExternalIPRefused, why
}

// notAdmitted says why the settings do not admit an address that nothing has, "" if they do. Pools that are not
// read yet may have it: what was forwarded so far goes on.
func (c *claims) notAdmitted(a netip.Addr) string {
	const setting = "the Helm value forwarding.externalIPs"
	switch c.options.ExternalIPs {
	case NoExternalIPs:
		return "is not forwarded, since " + setting + " is None"
	case ListedExternalIPs:
		if !slices.ContainsFunc(c.options.ExternalIPCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return "is not forwarded, since " + setting + " does not have it"
		}
	case PoolExternalIPs:
		pool := view.PoolOf(c.pools, a)
		switch {
		case !c.configured:
		case pool == nil:
			return "is not forwarded, since it is of no IPAddressPool and " + setting + " is Pools: have a pool give an address, or have the operator admit this one"
		case c.lifelines.has(a):
			return "is not forwarded, since " + c.lifelines[a].of + " has it: take it out"
		case !pool.Open():
			return "is not forwarded before its IPAddressPool " + pool.Name + " has given it to this namespace: ask for it in an IPReservation"
		}
	}
	return ""
}

func (c *claims) refusesClusterIP(s *view.Service, of []view.Ref) (reason, why string) {
	if slices.Contains(of, s.Ref) {
		return ReasonClusterIPTaken, ""
	}
	return ReasonClusterIPTaken, fmt.Sprintf("is the ClusterIP of Service %s, which gets what is sent there: take it out", of[0])
}

// haveIt reports whether the namespace, and others, have an address from a load balancer, by Services that count, or
// by reservations.
func (c *claims) haveIt(a netip.Addr, namespace string, counts func(*view.Service) bool) (own, others bool) {
	note := func(ref view.Ref) {
		own, others = own || ref.Namespace == namespace, others || ref.Namespace != namespace
	}
	for _, ref := range c.given[a] {
		if counts(c.services[ref]) {
			note(ref)
		}
	}
	for _, ref := range c.holders[a] {
		note(ref)
	}
	return own, others
}

// notes are texts by reason. Those that no message lists are only counted.
type notes map[string][]string

func (n notes) add(reason, format string, args ...any) {
	text := ""
	if len(n[reason]) < problem.MostListed {
		text = fmt.Sprintf(format, args...)
	}
	n[reason] = append(n[reason], text)
}
