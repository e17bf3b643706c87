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
)

// ConfigMaps are the names of those in MetalLB's namespace that are told of.
func ConfigMaps() []string { return []string{extras, excluded} }

// configMap tells of what is in one of them, which has no counterpart.
func (s *subject) configMap(u unstructured.Unstructured) {
	switch s.name {
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
