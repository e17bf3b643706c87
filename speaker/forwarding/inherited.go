package forwarding

import (
	"errors"
	"net/netip"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
	"fairlead.dev/fairlead/speaker/forwarding/iptables"
	"fairlead.dev/fairlead/speaker/forwarding/nftables"
)

// inherited is what an earlier process had the kernel do with UDP in one family. A NodePort
// is a port without an address.
type inherited struct{ services, endpoints map[netip.AddrPort]bool }

// orphan tells whether a flow is that of a Service that is no more; own are the node's
// addresses.
type orphan func(flow conntrack.Flow, own *localAddresses) bool

// inheritedRules reads what there is of all modes, since the mode may have been another.
func inheritedRules() (map[addr.Family]inherited, error) {
	all := map[addr.Family]inherited{}
	var errs []error
	for _, family := range addr.Families() {
		h := inherited{map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}}
		for _, placed := range []func(addr.Family, view.Protocol) (services, endpoints []netip.AddrPort, err error){
			iptables.Placed, nftables.Placed, journaled,
		} {
			services, endpoints, err := placed(family, view.UDP)
			errs = append(errs, err)
			for _, at := range services {
				h.services[at] = true
			}
			for _, e := range endpoints {
				h.endpoints[e] = true
			}
		}
		if len(h.services) > 0 {
			all[family] = h
		}
	}
	return all, errors.Join(errs...)
}

// orphans finds the flows of Services that are gone, once the kernel is as wanted. Ours are
// those that were translated, from what was a Service's to what was an endpoint: others may
// translate to pods, too, and the address of a Service may be another host's now.
func (h inherited) orphans(family addr.Family, want desired.Forwarding) orphan {
	wanted := map[netip.AddrPort]bool{}
	for key, p := range want.Ports {
		if key.Protocol != view.UDP || key.Family != family {
			continue
		}
		for at := range servedBy(p).destinations(key) {
			wanted[at.AddrPort] = true
		}
	}
	places := placesOf(want)
	return func(flow conntrack.Flow, own *localAddresses) bool {
		if flow.Answers == flow.To || !h.endpoints[flow.Answers] || wanted[flow.To] {
			return false
		}
		at := nodePort(family, view.UDP, flow.To.Port()).AddrPort
		if !own.have(flow.To.Addr()) {
			return h.services[flow.To]
		}
		return (h.services[flow.To] || h.services[at]) && (!wanted[at] || !places.have(flow.To.Addr()))
	}
}
