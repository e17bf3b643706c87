package metallb

import (
	"math"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
)

// maxEntries is how many addresses a pool of ours lists at most.
const maxEntries = 64

// pool translates the spec of an IPAddressPool.
func (s *subject) pool(in poolSpec) v1beta1.IPAddressPoolSpec {
	return v1beta1.IPAddressPoolSpec{
		Addresses:         s.addresses(in.Addresses),
		AutoAssign:        in.AutoAssign,
		AvoidBuggyIPs:     in.AvoidBuggyIPs,
		ServiceAllocation: s.allocation(in.ServiceAllocation),
	}
}

// addresses writes each entry in the one form that we take.
func (s *subject) addresses(in []string) v1beta1.AddressRanges {
	const path = "spec.addresses"
	var ranges []netipx.IPRange
	for _, text := range in {
		given := strings.TrimSpace(text)
		if prefix, err := netip.ParsePrefix(given); err == nil && prefix != prefix.Masked() && !prefix.Addr().Is4In6() {
			s.find(Differs, path, text, "written as %s, which is what MetalLB takes it for", prefix.Masked())
			given = prefix.Masked().String()
		}
		r, err := addr.ParseRange(given)
		if err != nil {
			s.refuse(path, text, "%v", err)
			continue
		}
		ranges = append(ranges, r)
	}
	if len(in) == 0 {
		s.refuse(path, nil, "a pool must have addresses")
	}
	out := written(ranges)
	if len(out) > maxEntries {
		out = written(addr.Join(ranges))
		s.find(Differs, path, len(in), "more than %d entries: joined into %d that hold the same addresses", maxEntries, len(out))
	}
	if len(out) > maxEntries {
		s.refuse(path, len(out), "more than %d entries that cannot be joined: make it two pools", maxEntries)
	}
	for _, entry := range out {
		r, err := addr.ParseRange(entry)
		if err != nil || !addr.Reachable(r.From()) || strings.Contains(entry, "-") && !addr.Reachable(r.To()) {
			s.refuse(path, entry, "begins or ends with an address that no other machine can reach: loopback, multicast, broadcast, unspecified or IPv6 link-local")
		}
	}
	return out
}

// written is each range once, as a CIDR where it is one.
func written(ranges []netipx.IPRange) v1beta1.AddressRanges {
	var out v1beta1.AddressRanges
	for _, r := range ranges {
		entry := r.String()
		if prefix, ok := r.Prefix(); ok {
			entry = prefix.String()
		}
		if !slices.Contains(out, entry) {
			out = append(out, entry)
		}
	}
	return out
}

// allocation translates what limits a pool to certain Services.
func (s *subject) allocation(in *allocationOfPool) *v1beta1.ServiceAllocation {
	if in == nil {
		return nil
	}
	const path = "spec.serviceAllocation."
	out := &v1beta1.ServiceAllocation{
		NamespaceSelectors: s.selectors(path+"namespaceSelectors", in.NamespaceSelectors),
		ServiceSelectors:   s.selectors(path+"serviceSelectors", in.ServiceSelectors),
	}
	if in.Priority < 0 || in.Priority > math.MaxInt32 {
		s.lose(path+"priority", in.Priority, "must be 1 to %d, or 0 for the last: left out, so that the pool comes after all with a priority; number the pools anew", math.MaxInt32)
	} else {
		out.Priority = int32(in.Priority)
	}
	for _, name := range in.Namespaces {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			s.refuse(path+"namespaces", name, "not the name of a namespace: %s", problems[0])
		} else if !slices.Contains(out.Namespaces, name) {
			out.Namespaces = append(out.Namespaces, name)
		}
	}
	if len(out.Namespaces) > maxNames {
		s.refuse(path+"namespaces", len(out.Namespaces), "more than %d namespaces: choose them by namespaceSelectors", maxNames)
	}
	return out
}
