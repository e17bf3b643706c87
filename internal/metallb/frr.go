package metallb

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// GroupFRR is the API group of frr-k8s, by which MetalLB speaks BGP unless it is told otherwise. frr-k8s
// reads FRRConfigurations of all namespaces, and adds up those of a node.
const GroupFRR = "frrk8s.metallb.io"

const frrConfiguration = "FRRConfiguration"

// frr tells of a configuration that is not MetalLB's own, which its speaker writes for each node.
func (s *subject) frr(u unstructured.Unstructured) {
	host, _, _ := unstructured.NestedString(u.Object, "spec", "nodeSelector", "matchLabels", corev1.LabelHostname)
	if host != "" && u.GetName() == "metallb-"+host {
		return
	}
	s.lose("spec", nil, "what frr-k8s does beside MetalLB has no counterpart: no routes are taken from routers, nothing is announced but addresses of Services, and there is no text for FRR; "+
		"where it names a router of a BGPPeer, frr-k8s keeps its session with that without MetalLB, and the router refuses Fairlead's: take that neighbor out of it then")
}
