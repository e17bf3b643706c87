package metallb

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/fairlead/api/v1beta1"
)

// What the schemas of our kinds allow at most.
const (
	maxNames       = 64
	maxSelectors   = 16
	maxExpressions = 16
	maxInterface   = 15
	maxWeight      = 100
	maxUint32      = 1<<32 - 1
)

// l2 translates the spec of an L2Advertisement.
func (s *subject) l2(in l2Spec) v1beta1.L2AdvertisementSpec {
	if len(in.Interfaces) == 0 {
		s.find(Differs, "spec.interfaces", nil, "left out, it means the interfaces on whose network the address is, or else those with the node's InternalIP, while MetalLB answers on all: name the interfaces if clients ask for an address on others")
	}
	return v1beta1.L2AdvertisementSpec{
		IPAddressPools:         s.names("spec.ipAddressPools", in.IPAddressPools),
		IPAddressPoolSelectors: s.selectors("spec.ipAddressPoolSelectors", in.IPAddressPoolSelectors),
		NodeSelectors:          s.selectors("spec.nodeSelectors", in.NodeSelectors),
		PreferredNodeSelectors: s.preferences(in.PreferredNodeSelectors),
		ServiceSelectors:       s.selectors("spec.serviceSelectors", in.ServiceSelectors),
		Interfaces:             s.interfaces(in.Interfaces),
	}
}

// bgp translates the spec of a BGPAdvertisement. Communities have the values of
// their names.
func (s *subject) bgp(in bgpSpec, t *translator) v1beta1.BGPAdvertisementSpec {
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
		AggregationLength:      s.aggregation("spec.aggregationLength", in.AggregationLength, 32, in.ServiceSelectors),
		AggregationLengthV6:    s.aggregation("spec.aggregationLengthV6", in.AggregationLengthV6, 128, in.ServiceSelectors),
		LocalPref:              preference,
		Communities:            s.communities(in.Communities, t),
	}
}

// aggregation takes the length of prefixes of a family whose addresses have so many bits.
func (s *subject) aggregation(path string, length *int64, bits int64, services []metav1.LabelSelector) *int32 {
	switch {
	case length == nil || *length == bits:
		return nil
	case *length < 1 || *length > bits:
		s.lose(path, *length, "must be 1 to %d: each address is announced by itself", bits)
		return nil
	case len(services) > 0:
		s.lose(path, *length, "there are serviceSelectors as well, which MetalLB refuses: each address is announced by itself")
		return nil
	}
	s.find(Differs, path, *length, "an aggregate that a pool does not hold as a whole is announced address by address, which filters of routers must let pass; "+
		"MetalLB announces all of it if the pool has it in a range (first-last) in which a CIDR of this length fits, and refuses all of its configuration if not")
	return new(int32(*length))
}

// aliases takes the names of communities that ours may have; the others are written out in
// the advertisements.
func (s *subject) aliases(in communitySpec, t *translator) v1beta1.CommunitySpec {
	const path = "spec.communities"
	var out v1beta1.CommunitySpec
	for _, c := range in.Communities {
		switch {
		case t.named[c.Name] || t.community[c.Name] != "":
			s.lose(path, c.Name, "another Community has this name, which MetalLB refuses: the value of the first is taken")
		case !community(c.Value) || !isAlias(c.Name) || slices.Contains(wellKnown, c.Name) || len(out.Communities) == maxNames:
			t.community[c.Name] = c.Value
			s.find(Differs, path, c.Name, "not a name that a Community has here: its value is written out in the BGPAdvertisements")
		default:
			t.named[c.Name] = true
			out.Communities = append(out.Communities, v1beta1.CommunityAlias{Name: c.Name, Value: c.Value})
		}
	}
	return out
}

// aliasName is what a name of a community looks like here, of at most maxAlias bytes.
var aliasName = regexp.MustCompile(`^[A-Za-z]([-_.A-Za-z0-9]*[A-Za-z0-9])?$`)

const maxAlias = 63

func isAlias(name string) bool { return aliasName.MatchString(name) && len(name) <= maxAlias }

// wellKnown are the names that stand for communities without any Community.
var wellKnown = []string{"no-export", "no-advertise", "no-export-subconfed", "no-peer", "blackhole", "graceful-shutdown", "accept-own"}

// communities takes values, and names that a Community of ours may have, as they are, and writes
// other names out. Without one of them, routes could go where they must not: what is neither of RFC 1997 nor of
// RFC 8092 refuses the object.
func (s *subject) communities(in []string, t *translator) []string {
	const path = "spec.communities"
	var out []string
	for _, text := range in {
		value, written := t.community[text]
		if !written {
			value = text
		}
		switch {
		case slices.Contains(out, value):
			continue
		case t.named[value] || community(value):
		case written || !isAlias(value):
			s.refuse(path, text, "neither asn:value, with both halves 0 to 65535, nor large:asn:value:value, nor the name of one in a Community that was given: write the value in place of the name")
		case slices.Contains(wellKnown, value):
			s.find(Differs, path, text, "is the well-known community, while MetalLB, which has no such names, announces nothing by it")
		default:
			s.find(Step, path, text, "no Community in what is printed has this name: make it, or write the value in its place; until then nothing is announced by this advertisement, as in MetalLB")
		}
		out = append(out, value)
	}
	if len(out) > maxNames {
		s.refuse(path, len(out), "more than %d communities: make it two objects, whose communities add up", maxNames)
	}
	return out
}

// community reports whether the text is one of RFC 1997, as asn:value, or of RFC 8092, as
// large:asn:value:value.
func community(text string) bool {
	parts, bits := strings.Split(text, ":"), 16
	if parts[0] == "large" {
		parts, bits = parts[1:], 32
	}
	const digits = 10
	for _, part := range parts {
		if _, err := strconv.ParseUint(part, 10, bits); err != nil || len(part) > digits || bits == 16 && len(part) > digits/2 {
			return false
		}
	}
	return bits == 16 && len(parts) == 2 || bits == 32 && len(parts) == 3
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
		if fault := faultOf(selector); fault != "" {
			s.refuse(path, selector, "%s", fault)
		}
	}
	return in
}

// faultOf says why a selector cannot be taken; "" if it can.
func faultOf(selector metav1.LabelSelector) string {
	if len(selector.MatchExpressions) > maxExpressions {
		return fmt.Sprintf("more than %d matchExpressions in one selector", maxExpressions)
	}
	if _, err := metav1.LabelSelectorAsSelector(&selector); err != nil {
		return fmt.Sprintf("not a selector (%v)", err)
	}
	return ""
}

// preferences takes what nodes are preferred as it is. Without one of them, the addresses
// are still answered for, and by none but the nodes that may.
func (s *subject) preferences(in []preferredNode) []v1beta1.PreferredNodeSelector {
	const path, rest = "spec.preferredNodeSelectors", ": left out, and the others are kept"
	var out []v1beta1.PreferredNodeSelector
	for _, p := range in {
		fault := faultOf(p.Preference)
		switch {
		case fault != "":
			s.lose(path, p, "%s", fault+rest)
		case p.Weight < 1 || p.Weight > maxWeight:
			s.lose(path, p, "the weight must be 1 to %d"+rest, maxWeight)
		case len(out) == maxSelectors:
			s.lose(path, p, "more than %d preferences"+rest, maxSelectors)
		default:
			out = append(out, v1beta1.PreferredNodeSelector{Weight: int32(p.Weight), Preference: p.Preference})
		}
	}
	return out
}

// interfaces takes names of interfaces as they are.
func (s *subject) interfaces(in []string) []string {
	var out []string
	for _, name := range in {
		if !isInterface(name) {
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

// isInterface reports whether a network interface can have the name.
func isInterface(name string) bool {
	odd := func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) }
	return name != "" && len(name) <= maxInterface && name != "." && name != ".." && !strings.ContainsFunc(name, odd)
}
