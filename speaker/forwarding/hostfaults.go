package forwarding

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/egress"
	"fairlead.dev/fairlead/speaker/outcome"
)

// Fault is a setting of the host by which some packets of Services go wrong although all rules are there.
type Fault struct {
	Reason  string // of the package outcome
	Message string // what goes wrong, and what to do about it
}

// Faults looks for settings of this host by which some packets go wrong of what Apply was last told to forward.
func (f *Forwarder) Faults() []Fault {
	if f.mode == None {
		return nil
	}
	f.host.mu.Lock()
	bridges, outward, clusterIPs := f.host.podBridges(), f.host.outer, f.host.clusterIPs
	f.host.mu.Unlock()
	found := append(deaf(outward), mute(slices.DeleteFunc(slices.Clone(bridges), func(name string) bool { return slices.Contains(outward, name) }))...)
	for _, family := range addr.Families() {
		if to, has := clusterIPs[family]; has {
			found = append(append(found, bypassed(family, bridges)...), unroutable(family, to.Addr)...)
		}
	}
	return found
}

// clusterIP is the address of a port.
type clusterIP struct {
	netip.Addr
	of desired.PortKey
}

// note takes over what Faults goes by. Only ports that may have changed are looked at, unless one is gone whose ClusterIP was noted.
func (h *host) note(want desired.Forwarding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, before := h.revision, h.clusterIPs
	h.revision, h.clusterIPs = want.Revision, map[addr.Family]clusterIP{}
	for _, noted := range before {
		if !h.take(want, noted.of) {
			since = 0
		}
	}
	for key := range want.ChangedSince(since, func(func(desired.PortKey) bool) {}) {
		if _, known := h.clusterIPs[key.Family]; !known {
			h.take(want, key)
		}
	}
}

// take notes the ClusterIP of a port, and by which links pods send, which is the same in all ports. It returns whether the port has one.
func (h *host) take(want desired.Forwarding, key desired.PortKey) bool {
	p, wanted := want.Ports[key]
	if !wanted {
		return false
	}
	h.links = p.PodLinks
	if !p.ClusterIP.IsValid() {
		return false
	}
	h.clusterIPs[key.Family] = clusterIP{p.ClusterIP, key}
	return true
}

// podBridges are the bridges that have an address where pods send from, or by which pods send.
func (h *host) podBridges() []string {
	var names []string
	for _, l := range h.is.Links {
		of := func(p netip.Prefix) bool {
			return slices.ContainsFunc(l.Addrs, func(a egress.Addr) bool { return p.Contains(a.Addr()) })
		}
		named := h.links.Name != "" && (l.Name == h.links.Name || h.links.Prefix && strings.HasPrefix(l.Name, h.links.Name))
		if l.Bridge && (named || slices.ContainsFunc(h.pods, of)) {
			names = append(names, l.Name)
		}
	}
	return names
}

// deaf finds interfaces from which nothing is forwarded while something is from others.
func deaf(outward []string) []Fault {
	some := offOn(outward)
	if len(some) == 0 || len(some) == len(outward) {
		return nil
	}
	return []Fault{{outcome.ReasonForwardingDisabled, fmt.Sprintf(
		"this node forwards no packets of IPv4 that come in by %s, so that clients and pods behind it reach no pod of a Service, since %s is 0: "+
			"set it to 1, as in /etc/sysctl.d, unless none are to come from there", strings.Join(some, ", "), setting(some))}}
}

// mute finds bridges of pods from which nothing is forwarded: no answer of a pod there leaves it.
func mute(bridges []string) []Fault {
	some := offOn(bridges)
	if len(some) == 0 {
		return nil
	}
	return []Fault{{outcome.ReasonForwardingDisabled, fmt.Sprintf(
		"this node forwards no packets of IPv4 that pods on %s send, so that these reach no Service and their answers no client, since %s is 0: "+
			"set it to 1, as in /etc/sysctl.d", strings.Join(some, ", "), setting(some))}}
}

// bypassed finds bridges of pods whose packets between two of their ports netfilter does not see: the answer of an
// endpoint to a pod beside it comes from the endpoint's address, and the pod takes it for nothing.
func bypassed(family addr.Family, bridges []string) []Fault {
	tables := map[addr.Family]string{addr.IPv4: "iptables", addr.IPv6: "ip6tables"}[family]
	setting := "bridge-nf-call-" + tables
	every := filepath.Join("/proc/sys/net/bridge", setting)
	if _, err := os.Stat(every); err == nil { // what is set for a bridge is nothing while the module is not loaded
		bridges = slices.DeleteFunc(slices.Clone(bridges), func(name string) bool {
			return isOne(filepath.Join("/sys/class/net", name, "bridge/nf_call_"+tables))
		})
	}
	if len(bridges) == 0 || isOne(every) {
		return nil
	}
	return []Fault{{outcome.ReasonBridgeBypassed, fmt.Sprintf(
		"what pods of this node send to each other on %s goes past netfilter, so that a pod gets no answer of a Service by %s whose endpoint is beside it: "+
			"load the module br_netfilter, as in /etc/modules-load.d, and set net.bridge.%s to 1, as in /etc/sysctl.d", strings.Join(bridges, ", "), family, setting)}}
}

// unroutable finds that a host has no route to a ClusterIP: what it sends itself is refused before any rule is asked.
func unroutable(family addr.Family, to netip.Addr) []Fault {
	if _, err := netlink.RouteGet(to.AsSlice()); !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EHOSTUNREACH) {
		return nil
	}
	return []Fault{{outcome.ReasonRouteMissing, fmt.Sprintf(
		"this node has no route of %s that leads to ClusterIPs, so that it reaches no Service by %s itself (network is unreachable), nor do pods on its network: "+
			"give it a default route, or one for the range of ClusterIPs; it may lead to any interface that is up", family, family)}}
}

// forwards returns an *outcome.FamilyError for each family of which something is to be forwarded, and this host forwards
// nothing: neither for clients nor from pods, whatever the rules are. All that is to be forwarded of it is missing then.
// absent are the families of which that is known.
func (h *host) forwards(want desired.Forwarding, missing outcome.Missing, absent map[addr.Family]bool) error {
	h.mu.Lock()
	off, has := h.why, h.has
	h.mu.Unlock()
	var errs []error
	for _, family := range addr.Families() {
		if !want.Has(family) || absent[family] {
			continue
		}
		why := off[family]
		if why == "" {
			continue
		}
		leaveOut(family, want, missing)
		reason := outcome.ReasonForwardingDisabled
		if !has[family] && len(has) > 0 { // a host of the other family alone: no client or pod reaches it by this one
			reason = outcome.ReasonFamilyAbsent
		}
		errs = append(errs, &outcome.FamilyError{Family: family, Settled: true, Err: outcome.Caused(reason, fmt.Errorf(
			"this node forwards no packets of %s, so that no Service with a pod behind it is served, since %s is 0: set it to 1, as in /etc/sysctl.d, "+
				"and see what sets it to 0, as profiles of hardening do; it is noticed when it is 1", family, why))})
	}
	return errors.Join(errs...)
}

// families are those of which an interface has an address by which other machines may reach it.
func (h *host) families() map[addr.Family]bool {
	has := map[addr.Family]bool{}
	for _, l := range h.is.Links {
		for _, a := range l.Addrs {
			has[addr.FamilyOf(a.Addr())] = true
		}
	}
	return has
}

// outward are the interfaces by which packets of IPv4 come from other machines: those with addresses of the node, and
// those that lead to routers.
func (h *host) outward() []string {
	routers := map[int]bool{}
	for _, r := range h.is.Routes {
		for _, hop := range r.Hops {
			routers[hop.Link] = routers[hop.Link] || hop.Gateway && r.To.Addr().Is4()
		}
	}
	own := slices.DeleteFunc(slices.Clone(h.own), netip.Addr.Is6)
	var names []string
	for _, l := range h.is.Links {
		if !l.Stub && (routers[l.Index] || slices.ContainsFunc(own, l.Has)) {
			names = append(names, l.Name)
		}
	}
	return names
}

const settings = "/proc/sys/net"

// off is the setting by which the kernel forwards nothing of a family that comes in by any of the interfaces; "" if it
// does, or cannot be asked. IPv6 has no such setting of an interface but one that forwards in spite of the other.
func off(family addr.Family, links []string) string {
	if family == addr.IPv6 {
		if !isZero(filepath.Join(settings, "ipv6/conf/all/forwarding")) {
			return ""
		}
		if forced, _ := filepath.Glob(filepath.Join(settings, "ipv6/conf/*/force_forwarding")); slices.ContainsFunc(forced, isOne) {
			return ""
		}
		return "net.ipv6.conf.all.forwarding"
	}
	if isZero(filepath.Join(settings, "ipv4/ip_forward")) {
		return "net.ipv4.ip_forward"
	}
	if some := offOn(links); len(some) > 0 && len(some) == len(links) {
		return setting(some)
	}
	return ""
}

// offOn are those of the interfaces that forward nothing of IPv4.
func offOn(links []string) (some []string) {
	for _, name := range links {
		if isZero(filepath.Join(settings, "ipv4/conf", name, "forwarding")) {
			some = append(some, name)
		}
	}
	return some
}

// setting names that of interfaces as sysctl does.
func setting(links []string) string {
	var names []string
	for _, name := range links {
		names = append(names, "net.ipv4.conf."+strings.ReplaceAll(name, ".", "/")+".forwarding")
	}
	return strings.Join(names, ", ")
}

// read is what a file of the kernel says; "" if it does not.
func read(file string) string {
	value, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(value))
}

func isZero(file string) bool { return read(file) == "0" }
func isOne(file string) bool  { return read(file) == "1" }
