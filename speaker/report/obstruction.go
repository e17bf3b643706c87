package report

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/internal/gauge"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
)

// Reasons of the Events on a Node with something that silently breaks layer 2, and of the
// condition of the L2Addresses that it answers for.
const (
	// ReasonReversePathFiltered: a strict rp_filter drops what clients beyond the network send.
	ReasonReversePathFiltered = "ReversePathFiltered"
	// ReasonFramesByAddress: the interface gets frames for its own addresses only.
	ReasonFramesByAddress = "FramesByAddress"
	// ReasonPromiscuousModeMissing: a wireless interface may not pass on ARP for addresses that
	// the kernel does not have.
	ReasonPromiscuousModeMissing = "PromiscuousModeMissing"
	// ReasonAddressOnInterface: the kernel answers, too, since an interface has an address.
	ReasonAddressOnInterface = "AddressOnInterface"
	// ReasonAddressProxied: the kernel answers, too, as a proxy.
	ReasonAddressProxied = "AddressProxied"
)

// Obstacles takes in what on this node silently breaks layer 2, each with the addresses.
func (r *Reporter) Obstacles(found map[hostchecks.Obstacle][]netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if maps.EqualFunc(found, r.obstacles, slices.Equal[[]netip.Addr]) {
		return
	}
	r.obstacles = found
	before := r.inTheWay
	r.inTheWay = map[netip.Addr]Finding{}
	counts := gauge.Series{}
	for _, o := range sorted(found) {
		reason, message := r.describe(o)
		counts[reason] += float64(len(found[o]))
		for _, a := range found[o] {
			in := Finding{reason, message, time.Now()}
			if last, known := before[a]; known {
				in.Since = last.Since
			}
			if other, more := r.inTheWay[a]; more {
				in.Reason, in.Message = other.Reason, other.Message+"; "+message
			}
			r.inTheWay[a] = in
		}
	}
	r.metrics.obstructed.Replace(counts)
	r.publishProblems()
	r.writeAddresses()
}

func sorted(found map[hostchecks.Obstacle][]netip.Addr) []hostchecks.Obstacle {
	return slices.SortedFunc(maps.Keys(found), func(a, b hostchecks.Obstacle) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Interface, b.Interface), strings.Compare(a.Via, b.Via))
	})
}

func (r *Reporter) obstructions() []problem.Problem {
	var problems []problem.Problem
	for _, o := range sorted(r.obstacles) {
		reason, message := r.describe(o)
		problems = append(problems, problem.Advice(r.self(), reason, "%s", message))
	}
	return problems
}

// describe returns the reason of an obstacle, and a message with what it does and what to do about it. The
// message names no address: which addresses are concerned changes, and is not worth an Event.
func (r *Reporter) describe(o hostchecks.Obstacle) (reason, message string) {
	switch o.Kind {
	case hostchecks.ReversePath, hostchecks.BareReversePath:
		return ReasonReversePathFiltered, fmt.Sprintf("node %s drops what clients beyond the network send to addresses on %s: %s", r.node, o.Interface, o.Filter())
	case hostchecks.ByAddress:
		return ReasonFramesByAddress, fmt.Sprintf("node %s answers on %s, an ipvlan, which gets frames only for addresses that it has itself: "+
			"name another interface in the L2Advertisement, or make it a macvlan", r.node, o.Interface)
	case hostchecks.Selective:
		return ReasonPromiscuousModeMissing, fmt.Sprintf("node %s answers on %s, which is wireless and not promiscuous: its firmware may keep questions for the addresses to itself; "+
			"ip link set %s promisc on", r.node, o.Interface, o.Interface)
	case hostchecks.Held:
		return ReasonAddressOnInterface, fmt.Sprintf("the kernel of node %s answers on %s for addresses that %s has and that are answered for otherwise: clients may reach either; "+
			"take them from %s (kube-proxy in IPVS mode needs strictARP), or for IPv4 set the sysctls net.ipv4.conf.all.arp_ignore=1 and net.ipv4.conf.all.arp_announce=2",
			r.node, o.Interface, o.Via, o.Via)
	default:
		return ReasonAddressProxied, fmt.Sprintf("the kernel of node %s answers on %s as a proxy for addresses that are answered for otherwise: clients may reach either; "+
			"set the sysctl net.ipv4.conf.%s.proxy_arp=0, and see ip neigh show proxy", r.node, o.Interface, o.Interface)
	}
}
