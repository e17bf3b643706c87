package metallb

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/fairlead/api/v1beta1"
)

// What the schemas of our kinds allow at most.
const (
	maxNames       = 64
	maxSelectors   = 16
	maxExpressions = 16
	maxInterface   = 15
	maxUint32      = 1<<32 - 1
)

// l2 translates the spec of an L2Advertisement.
func (s *subject) l2(in l2Spec) v1beta1.L2AdvertisementSpec {
	if len(in.PreferredNodeSelectors) > 0 {
		s.lose("spec.preferredNodeSelectors", in.PreferredNodeSelectors, "there is no preference among nodes: each address is answered for by one of those that nodeSelectors choose, spread evenly")
	}
	if len(in.Interfaces) == 0 {
		s.find(Differs, "spec.interfaces", nil, "left out, it means the interfaces on whose network the address is, while MetalLB answers on all: name the interfaces of addresses that are on the network of none")
	}
	return v1beta1.L2AdvertisementSpec{
		IPAddressPools:         s.names("spec.ipAddressPools", in.IPAddressPools),
		IPAddressPoolSelectors: s.selectors("spec.ipAddressPoolSelectors", in.IPAddressPoolSelectors),
		NodeSelectors:          s.selectors("spec.nodeSelectors", in.NodeSelectors),
		ServiceSelectors:       s.selectors("spec.serviceSelectors", in.ServiceSelectors),
		Interfaces:             s.interfaces(in.Interfaces),
	}
}

// bgp translates the spec of a BGPAdvertisement. Communities have the values of
// their names.
func (s *subject) bgp(in bgpSpec, communities map[string]string) v1beta1.BGPAdvertisementSpec {
	for _, aggregation := range []struct {
		path   string
		length *int64
		whole  int64
	}{{"spec.aggregationLength", in.AggregationLength, 32}, {"spec.aggregationLengthV6", in.AggregationLengthV6, 128}} {
		if aggregation.length != nil && *aggregation.length != aggregation.whole {
			s.lose(aggregation.path, *aggregation.length, "each address is announced by itself, as a /%d: have the routers aggregate, or let them accept such long prefixes", aggregation.whole)
		}
	}
	preference := in.LocalPref
	if preference < 0 || preference > maxUint32 {
		s.lose("spec.localPref", preference, "must be 0 to %d: left out", int64(maxUint32))
		preference = 0
	}
	return v1beta1.BGPAdvertisementSpec{
		IPAddressPools:         s.names("spec.ipAddressPools", in.IPAddressPools),
		IPAddressPoolSelectors: s.selectors("spec.ipAddressPoolSelectors", in.IPAddressPoolSelectors),
		NodeSelectors:          s.selectors("spec.nodeSelectors", in.NodeSelectors),
		ServiceSelectors:       s.selectors("spec.serviceSelectors", in.ServiceSelectors),
		Peers:                  s.names("spec.peers", in.Peers),
		LocalPref:              preference,
		Communities:            s.communities(in.Communities, communities),
	}
}

// communities writes names out. What is no community of RFC 1997 is lost.
func (s *subject) communities(in []string, known map[string]string) []string {
	const path = "spec.communities"
	var out []string
	for _, text := range in {
		value := text
		if named, ok := known[text]; ok {
			value = named
		}
		switch {
		case strings.HasPrefix(value, "large:"):
			s.lose(path, text, "large communities (RFC 8092) are not sent yet: have the routers go by one of the form asn:value")
		case !community(value):
			s.lose(path, text, "neither asn:value, with both halves 0 to 65535, nor the name of one in a Community that was given: write the value in place of the name")
		case slices.Contains(out, value):
		case len(out) == maxNames:
			s.lose(path, text, "more than %d communities", maxNames)
		default:
			out = append(out, value)
		}
	}
	return out
}

// community tells whether the text is one of RFC 1997, as asn:value.
func community(text string) bool {
	asn, value, ok := strings.Cut(text, ":")
	return ok && half(asn) && half(value)
}

func half(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil && len(text) <= 5
}

// names takes names of objects as they are. Without one of them, the list could come
// to mean all.
func (s *subject) names(path string, in []string) v1beta1.ObjectNames {
	var out v1beta1.ObjectNames
	for _, name := range in {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			s.refuse(path, name, "not the name of an object: %s", problems[0])
		} else if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if len(out) > maxNames {
		s.refuse(path, len(out), "more than %d names: choose by labels, or make it two objects", maxNames)
	}
	return out
}

// selectors takes selectors as they are.
func (s *subject) selectors(path string, in []metav1.LabelSelector) v1beta1.Selectors {
	if len(in) > maxSelectors {
		s.refuse(path, len(in), "more than %d selectors: make it two objects", maxSelectors)
	}
	for _, selector := range in {
		if len(selector.MatchExpressions) > maxExpressions {
			s.refuse(path, selector, "more than %d matchExpressions in one selector", maxExpressions)
		}
		if _, err := metav1.LabelSelectorAsSelector(&selector); err != nil {
			s.refuse(path, selector, "not a selector (%v)", err)
		}
	}
	return in
}

// interfaces takes names of interfaces as they are.
func (s *subject) interfaces(in []string) []string {
	var out []string
	for _, name := range in {
		odd := func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) }
		if name == "" || len(name) > maxInterface || name == "." || name == ".." || strings.ContainsFunc(name, odd) {
			s.refuse("spec.interfaces", name, "not the name of a network interface")
		} else if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if len(out) > maxNames {
		s.refuse("spec.interfaces", len(out), "more than %d interfaces: make it two objects", maxNames)
	}
	return out
}

// onTheLocalNetwork tells of the pools whose IPv6 addresses nobody answers for.
func (t *translator) onTheLocalNetwork(a v1beta1.L2Advertisement) {
	s := &subject{kind: a.Kind, name: a.Name}
	for _, pool := range t.Pools {
		has6 := slices.ContainsFunc(pool.Spec.Addresses, func(entry string) bool { return strings.Contains(entry, ":") })
		if has6 && covers(a.Spec, pool) {
			s.lose("spec.ipAddressPools", pool.Name, "the IPv6 addresses of the pool are not answered for on the local network yet: announce them by BGP, or leave them to MetalLB")
		}
	}
	t.Findings = append(t.Findings, s.findings...)
}

// covers tells whether the advertisement is about the pool.
func covers(a v1beta1.L2AdvertisementSpec, pool v1beta1.IPAddressPool) bool {
	if len(a.IPAddressPools) == 0 && len(a.IPAddressPoolSelectors) == 0 || slices.Contains(a.IPAddressPools, pool.Name) {
		return true
	}
	return slices.ContainsFunc(a.IPAddressPoolSelectors, func(l metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(&l)
		return err == nil && selector.Matches(labels.Set(pool.Labels))
	})
}
