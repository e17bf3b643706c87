package fromkube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// maxRequested is how many addresses, pools or reservations one Service can ask for.
const maxRequested = 16

// maxName is how long the name of an object can be (RFC 1123 subdomain).
const maxName = 253

// Requests reads Services with what they ask of the allocation.
type Requests struct {
	// MetalLB: read MetalLB's annotations too, those of both its prefixes.
	MetalLB bool
}

// Service reads all of a Service, as the controller needs it; nil for headless and ExternalName ones.
func (o Requests) Service(s *corev1.Service) *view.Service {
	v := Service(s)
	if v == nil {
		return nil
	}
	v.UID, v.Created, v.Labels = string(s.UID), s.CreationTimestamp.Time, s.Labels
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		v.Ingress = append(v.Ingress, addresses([]string{ingress.IP})...)
	}
	v.FamilyPolicy = view.IPFamilyPolicy(ptr.Deref(s.Spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack))
	v.Families = families(s, v.ClusterIPs)
	v.Request = o.Read(s, v)
	v.Request.Stray = o.Stray(v.Object(), s)
	return v
}

// mention is one place where a Service says something about its address.
type mention struct {
	where string // for messages
	text  string
}

// Read reads the request of a Service, of which v is the rest. Of several places that
// give the same setting, Fairlead's annotation counts before MetalLB's newer and older ones
// and the field of the Service; a different value is a conflict.
func (o Requests) Read(s *corev1.Service, v *view.Service) view.Request {
	var r view.Request
	invalid := func(at mention, err error) view.Request {
		p := problem.New(v.Object(), ReasonInvalidRequest, "%s: %v", at.where, err)
		return view.Request{ShareKey: r.ShareKey, ShareWith: r.ShareWith, Invalid: &p}
	}
	keys := o.mentions(s, v1beta1.AnnotationShareKey, v1beta1.MetalLBShareKey)
	if len(keys) > 0 {
		r.ShareKey = view.Secret(strings.TrimSpace(keys[0].text))
		r.Conflicts = append(r.Conflicts, conflicts(keys, parseKey)...)
	}
	for _, named := range []struct {
		ours, theirs string
		into         *[]string
	}{
		{v1beta1.AnnotationShareWith, "", &r.ShareWith},
		{v1beta1.AnnotationPool, v1beta1.MetalLBPool, &r.Pools},
		{v1beta1.AnnotationReservation, "", &r.Reservations},
	} {
		at := o.mentions(s, named.ours, named.theirs)
		if len(at) == 0 {
			continue
		}
		names, err := parseNames(at[0].text)
		if err != nil {
			return invalid(at[0], err)
		}
		*named.into = names
		r.Conflicts = append(r.Conflicts, conflicts(at, parseNames)...)
	}
	addresses := o.mentions(s, v1beta1.AnnotationAddresses, v1beta1.MetalLBAddresses)
	if s.Spec.LoadBalancerIP != "" {
		addresses = append(addresses, mention{"spec.loadBalancerIP", s.Spec.LoadBalancerIP})
	}
	if len(addresses) > 0 {
		found, err := parseAddresses(addresses[0].text)
		if err != nil {
			return invalid(addresses[0], err)
		}
		r.Addresses = found
		r.Conflicts = append(r.Conflicts, conflicts(addresses, parseAddresses)...)
	}
	return r
}

// mentions are the annotations of one meaning that say something, those to be
// followed first. theirs is a name below MetalLB's prefixes, "" for none.
func (o Requests) mentions(s *corev1.Service, ours, theirs string) []mention {
	keys := []string{ours}
	if o.MetalLB && theirs != "" {
		for _, prefix := range v1beta1.MetalLBPrefixes() {
			keys = append(keys, prefix+theirs)
		}
	}
	var found []mention
	for _, key := range keys {
		if text := s.Annotations[key]; strings.TrimSpace(text) != "" {
			found = append(found, mention{"annotation " + key, text})
		}
	}
	return found
}

// quotable is as much of a text as a message quotes: a user may write 256 KiB.
func quotable(text string) string { return problem.Clip(text, 64) }

// conflicts says which places say something else than the first.
func conflicts[T comparable](mentions []mention, parse func(string) ([]T, error)) []string {
	var told []string
	first := mentions[0]
	meant, err := parse(first.text)
	for _, other := range mentions[1:] {
		also, otherErr := parse(other.text)
		if err == nil && otherErr == nil && sets.New(meant...).Equal(sets.New(also...)) {
			continue
		}
		told = append(told, fmt.Sprintf("%s says %q and %s says %q: the former is followed; remove one, or make them the same",
			first.where, quotable(first.text), other.where, quotable(other.text)))
	}
	return told
}

// parseNames reads names of objects, separated by commas.
func parseNames(text string) ([]string, error) {
	var names []string
	for part := range strings.SplitSeq(text, ",") {
		name := strings.TrimSpace(part)
		if name == "" {
			return nil, fmt.Errorf("%q has an empty name; write names separated by commas", quotable(text))
		}
		if len(name) > maxName {
			return nil, fmt.Errorf("%q is too long for a name, which has %d bytes at most", quotable(name), maxName)
		}
		if slices.Contains(names, name) {
			continue
		}
		if len(names) == maxRequested {
			return nil, fmt.Errorf("more than %d names are too many for one Service", maxRequested)
		}
		names = append(names, name)
	}
	return names, nil
}

// parseKey reads a share key, which may be any text.
func parseKey(text string) ([]string, error) { return []string{strings.TrimSpace(text)}, nil }

// parseAddresses reads addresses separated by commas.
func parseAddresses(text string) ([]netip.Addr, error) {
	var found []netip.Addr
	for part := range strings.SplitSeq(text, ",") {
		a, ok := plainAddress(strings.TrimSpace(part))
		if !ok {
			return nil, fmt.Errorf("%q is not an IP address; write addresses separated by commas", quotable(strings.TrimSpace(part)))
		}
		if slices.Contains(found, a) {
			continue
		}
		if len(found) == maxRequested {
			return nil, fmt.Errorf("more than %d addresses are too many for one Service", maxRequested)
		}
		found = append(found, a)
	}
	return found, nil
}

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
