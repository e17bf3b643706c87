package forwarding

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

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
