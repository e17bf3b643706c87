package desired

import (
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
		ready := map[netip.Addr]struct{}{}
		for port := range portsListed(endpoints) {
			for _, offer := range view.OffersOf(endpoints, family, port.Name, port.Protocol) {
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
func portsListed(endpoints []view.Endpoint) map[view.EndpointPort]struct{} {
	ports := map[view.EndpointPort]struct{}{}
	for i := range endpoints {
		for _, p := range endpoints[i].Ports {
			ports[view.EndpointPort{Name: p.Name, Protocol: p.Protocol}] = struct{}{}
		}
	}
	return ports
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
