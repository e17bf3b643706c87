package desired

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// healthCheck counts addresses as flows find them: where two endpoints claim one address and port,
// the one that gets the flows counts.
func healthCheck(s *view.Service, endpoints []view.Endpoint, node string) HealthCheck {
	check := HealthCheck{Port: s.HealthCheckPort, Ready: map[addr.Family]int{}}
	for _, a := range s.ClusterIPs {
		check.Ready[addr.FamilyOf(a)] = 0
	}
	for family := range check.Ready {
		here, ready := map[netip.Addr]bool{}, map[netip.Addr]struct{}{}
		for i := range endpoints {
			if e := &endpoints[i]; e.Node == node {
				here[e.Addr] = true
			}
		}
		own := slices.DeleteFunc(slices.Clone(endpoints), func(e view.Endpoint) bool { return !here[e.Addr] })
		listed, _ := view.OffersByPort(own, family, portsListed(own))
		for _, offers := range listed {
			for _, offer := range offers {
				if offer.Ready && offer.Node == node && node != "" {
					ready[offer.To.Addr()] = struct{}{}
				}
			}
		}
		check.Ready[family] = len(ready)
	}
	return check
}

// portsListed are the names and protocols of all ports that endpoints have, whether the Service
// has them or not, without their numbers.
func portsListed(endpoints []view.Endpoint) []view.PortName {
	ports := map[view.PortName]struct{}{}
	var of []view.EndpointPort // of a slice
	for i := range endpoints {
		if now := endpoints[i].Ports; len(now) != len(of) || len(of) > 0 && &now[0] != &of[0] {
			of = now
			for _, p := range of {
				ports[view.PortName{Name: p.Name, Protocol: p.Protocol}] = struct{}{}
			}
		}
	}
	return slices.Collect(maps.Keys(ports))
}

// narrowed reports whether the options say where NodePorts answer. Without that, load balancers and
// Kubernetes' own tests expect an answer on every address of the node.
func narrowed(o Options) bool { return o.NodePortPrimary || len(o.NodePortCIDRs) > 0 }

// HealthPrefixes returns the prefixes in which HealthPorts answer, on the addresses that this node has.
// One of all addresses of a family has its loopback addresses, too.
func (f Forwarding) HealthPrefixes() []netip.Prefix {
	if !f.HealthNarrow {
		return []netip.Prefix{addr.IPv4.Everything(), addr.IPv6.Everything()}
	}
	var whole, parts []netip.Prefix
	for _, p := range f.NodePorts {
		if p.Bits() == 0 {
			whole = append(whole, p)
		} else {
			parts = append(parts, p)
		}
	}
	parts = slices.Concat(addr.WithoutLoopback(parts), f.Loopback)
	for _, w := range whole {
		parts = slices.DeleteFunc(parts, func(p netip.Prefix) bool { return addr.FamilyOf(p.Addr()) == addr.FamilyOf(w.Addr()) })
	}
	return append(whole, parts...)
}

// HealthAddrs are the addresses to listen on for those prefixes, sorted, on a node that has its own. The
// unspecified one is for all of a family. Of loopback addresses a node has more than any interface lists.
func HealthAddrs(prefixes []netip.Prefix, own []netip.Addr) []netip.Addr {
	var addrs []netip.Addr
	for _, p := range prefixes {
		if p.Bits() == 0 || p.IsSingleIP() && p.Addr().IsLoopback() {
			addrs = append(addrs, p.Addr())
			continue
		}
		for _, a := range own {
			if p.Contains(a.WithZone("")) {
				addrs = append(addrs, a)
			}
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

func healthPorts(checks map[view.Ref]HealthCheck) []uint16 {
	var ports []uint16
	for _, check := range checks {
		ports = append(ports, check.Port)
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
