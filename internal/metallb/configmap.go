package metallb

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The ConfigMaps in which MetalLB has what its kinds do not say.
const (
	extras   = "bgpextras"
	excluded = "metallb-excludel2"
	// former is where releases had all of it before they had kinds.
	former = "config"
)

// ConfigMaps are the names of those in MetalLB's namespace that are told of.
func ConfigMaps() []string { return []string{extras, excluded} }

// isFormer reports whether it is the configuration of a release that had no kinds, by what such a one has: other programs have a
// ConfigMap of that name, too.
func isFormer(u unstructured.Unstructured) bool {
	text, _, _ := unstructured.NestedString(u.Object, "data", former)
	return u.GetName() == former && (strings.Contains(text, "address-pools:") || strings.Contains(text, "my-asn:"))
}

// configMap tells of what is in one of them, which has no counterpart.
func (s *subject) configMap(u unstructured.Unstructured) {
	switch s.name {
	case former:
		s.lose("data["+former+"]", nil, "the configuration of MetalLB up to v0.12, which is not read here: make objects of MetalLB's kinds of it by MetalLB's configmaptocrs, and translate these")
	case extras:
		s.lose("data", nil, "the text that MetalLB adds to FRR's configuration has no counterpart: see whether a field of BGPPeer or BGPAdvertisement says the same, or let the routers do it")
	case excluded:
		s.excluded(u)
	}
}

// usuallyExcluded reports whether MetalLB's manifests and chart come with a pattern. Its older releases
// wrote some without the sign for the beginning of a name, or for its end.
func usuallyExcluded(pattern string) bool {
	return slices.Contains([]string{
		"docker.*", "cbr.*", "dummy.*", "virbr.*", "lxcbr.*", "veth.*", "lo", "cali.*",
		"tunl.*", "flannel.*", "kube-ipvs.*", "cni.*", "nodelocaldns.*", "lxc.*",
	}, strings.TrimSuffix(strings.TrimPrefix(pattern, "^"), "$"))
}

// excluded tells of the interfaces on which MetalLB does not announce.
func (s *subject) excluded(u unstructured.Unstructured) {
	const key = "excludel2.yaml"
	text, _, _ := unstructured.NestedString(u.Object, "data", key)
	var list struct {
		Patterns []string `json:"announcedInterfacesToExclude"`
	}
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		s.lose("data["+key+"]", nil, "cannot be read (%v), and there are no patterns of interfaces here: name those that are to answer in interfaces of the L2Advertisements", err)
		return
	}
	own := slices.DeleteFunc(list.Patterns, usuallyExcluded)
	if len(own) > 0 {
		s.lose("data["+key+"]", own, "there are no patterns of interfaces here: if an interface that one of these means is on the network of an address, name those that are to answer in interfaces of the L2Advertisements")
		return
	}
	s.find(Differs, "data["+key+"]", nil, "not needed: without interfaces in an L2Advertisement, a node answers only on interfaces on whose network the address is, or else on those with its InternalIP, "+
		"and those that MetalLB leaves out by default are on networks of their own; if they are not, name those that are to answer in interfaces of the L2Advertisements")
}
