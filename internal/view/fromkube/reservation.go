package fromkube

import (
	"net/netip"
	"slices"

	"k8s.io/utils/ptr"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Reservation reads an IPReservation.
func Reservation(r *v1beta1.IPReservation) *view.Reservation {
	v := &view.Reservation{
		Ref:      view.Ref{Namespace: r.Namespace, Name: r.Name},
		Created:  r.CreationTimestamp.Time,
		Count:    int(ptr.Deref(r.Spec.Count, 0)),
		Pool:     r.Spec.Pool,
		Deleting: r.DeletionTimestamp != nil,
	}
	v.Stray = Requests{}.Stray(v.Object(), r)
	for _, text := range r.Status.Addresses {
		if a, ok := plainAddress(text); ok && !slices.Contains(v.Held, a) {
			v.Held = append(v.Held, a)
		}
	}
	invalid := func(format string, args ...any) {
		if v.Invalid == nil {
			p := problem.New(v.Object(), ReasonInvalidAddresses, format, args...)
			v.Invalid = &p
		}
	}
	for i, text := range r.Spec.Addresses {
		a, ok := plainAddress(text)
		switch {
		case !ok:
			invalid("spec.addresses[%d]: %q is not an IP address", i, text)
		case !addr.Reachable(a):
			invalid("spec.addresses[%d]: no Service can have %s", i, a)
		case !slices.Contains(v.Addresses, a):
			v.Addresses = append(v.Addresses, a)
		}
	}
	if (len(r.Spec.Addresses) > 0) == (v.Count > 0) {
		invalid("spec: give either addresses, to hold these, or count, to hold any")
	}
	v.Families = reservedFamilies(r.Spec.Families)
	return v
}

// plainAddress reads an address without zone, IPv4 not mapped into IPv6.
func plainAddress(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	return a, err == nil && !a.Is4In6() && a.Zone() == ""
}

// reservedFamilies reads the families of a reservation; the schema admits these two only.
func reservedFamilies(names []v1beta1.AddressFamily) []addr.Family {
	if len(names) == 0 {
		return []addr.Family{addr.IPv4}
	}
	var found []addr.Family
	for _, f := range addr.Families() {
		if slices.Contains(names, v1beta1.AddressFamily(f.String())) {
			found = append(found, f)
		}
	}
	return found
}
