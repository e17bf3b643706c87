package iptables

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
)

// elements are what the fixed sets hold of a port. What no set of the family can hold
// is left to the rules, which the kernel refuses: one bad port must not fail the set
// for all. Endpoints that serve no new flows are among them, for those that they have.
func elements(key desired.PortKey, p desired.Port) map[string][]ipset.Element {
	elements := map[string][]ipset.Element{}
	number := key.Protocol.Number()
	if number == 0 {
		return elements
	}
	for _, e := range p.Endpoints() {
		if addr.FamilyOf(e.Addr()) == key.Family && e.Port() != 0 {
			elements[ofEndpoints] = append(elements[ofEndpoints], ipset.Element{
				Prefix: addr.HostPrefix(e.Addr()), Second: e.Addr(), Protocol: number, Port: e.Port(),
			})
		}
	}
	for _, a := range slices.Concat([]netip.Addr{p.ClusterIP}, p.ExternalIPs, p.VIPs) {
		if a.IsValid() && addr.FamilyOf(a) == key.Family && p.Port != 0 {
			elements[ofDestinations] = append(elements[ofDestinations], ipset.Element{
				Prefix: addr.HostPrefix(a), Protocol: number, Port: p.Port,
			})
		}
	}
	if p.ClusterIP.IsValid() && addr.FamilyOf(p.ClusterIP) == key.Family {
		elements[ofClusterIPs] = []ipset.Element{{Prefix: addr.HostPrefix(p.ClusterIP)}}
	}
	for of, addresses := range map[string][]netip.Addr{ofVIPs: p.Refusing(), ofPinged: p.Pinged()} {
		for _, a := range addresses {
			if addr.FamilyOf(a) == key.Family {
				elements[of] = append(elements[of], ipset.Element{Prefix: addr.HostPrefix(a)})
			}
		}
	}
	if p.NodePort != 0 {
		elements[ofNodePorts] = portElements([]uint16{p.NodePort})
	}
	return elements
}

// netElements are the prefixes of one family as a hash:net set takes them: it
// knows no prefix of length 0, so that "everything" becomes two halves.
func netElements(prefixes []netip.Prefix, family addr.Family) []ipset.Element {
	var elements []ipset.Element
	for _, p := range prefixes {
		if addr.FamilyOf(p.Addr()) != family {
			continue
		}
		if p.Bits() > 0 {
			elements = append(elements, ipset.Element{Prefix: p.Masked()})
			continue
		}
		upper := slices.Clone(p.Masked().Addr().AsSlice())
		upper[0] = 0x80
		a, _ := netip.AddrFromSlice(upper)
		elements = append(elements,
			ipset.Element{Prefix: netip.PrefixFrom(p.Masked().Addr(), 1)}, ipset.Element{Prefix: netip.PrefixFrom(a, 1)})
	}
	return elements
}

func portElements(ports []uint16) []ipset.Element {
	elements := make([]ipset.Element, 0, len(ports))
	for _, port := range ports {
		elements = append(elements, ipset.Element{Port: port})
	}
	return elements
}
