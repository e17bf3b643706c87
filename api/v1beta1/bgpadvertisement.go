package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BGPAdvertisement makes addresses reachable through routers: every node that
// can serve an address announces a route to it (a /32 or a /128) to its
// BGPPeers, and routers spread connections over the nodes. Without any
// BGPAdvertisement nothing is announced.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=bgpadvertisements,scope=Cluster,shortName=flbgp,categories=fairlead
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.spec.ipAddressPools`
// +kubebuilder:printcolumn:name="Peers",type=string,JSONPath=`.spec.peers`
// +kubebuilder:printcolumn:name="Communities",type=string,priority=1,JSONPath=`.spec.communities`
// +kubebuilder:printcolumn:name="Local Pref",type=integer,priority=1,JSONPath=`.spec.localPref`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BGPAdvertisement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which addresses to announce, from which nodes, to which peers
	// and how. Left out, every address is announced to every peer.
	// +optional
	Spec BGPAdvertisementSpec `json:"spec,omitzero"`
	// status says whether the advertisement is in use. It is written by
	// Fairlead; do not edit it.
	// +optional
	Status BGPAdvertisementStatus `json:"status,omitzero"`
}

// BGPAdvertisementSpec says which addresses to announce, from where, to whom
// and with which attributes. The parts narrow each other: an address must match
// the pools and the Service must match serviceSelectors.
type BGPAdvertisementSpec struct {
	// ipAddressPools are the names of the pools whose addresses to announce,
	// for example [bgp]. Together with ipAddressPoolSelectors: a pool is meant
	// when either names it. Both left out: all pools.
	// +optional
	IPAddressPools ObjectNames `json:"ipAddressPools,omitempty"`

	// ipAddressPoolSelectors choose pools by their labels; a pool is meant when
	// one of them matches. For example [{matchLabels: {network: public}}].
	// +optional
	IPAddressPoolSelectors Selectors `json:"ipAddressPoolSelectors,omitempty"`

	// nodeSelectors choose by their labels the nodes that announce; a node does
	// when one of them matches. Left out: all nodes. For example
	// [{matchLabels: {topology.kubernetes.io/zone: a}}].
	// +optional
	NodeSelectors Selectors `json:"nodeSelectors,omitempty"`

	// serviceSelectors choose by their labels the Services whose addresses to
	// announce; a Service is meant when one of them matches. Left out: all
	// Services. For example [{matchLabels: {exposure: public}}].
	// +optional
	ServiceSelectors Selectors `json:"serviceSelectors,omitempty"`

	// peers are the names of the BGPPeers to announce to, for example
	// [router-a]. Left out: all peers of the node.
	// +optional
	Peers ObjectNames `json:"peers,omitempty"`

	// localPref is the LOCAL_PREF of the routes, 0 to 4294967295; among routes
	// to one address, routers of the same AS take the highest. It is only sent
	// to peers with our own ASN (RFC 4271, 5.1.5). Left out or 0: not set, and
	// routers take their own default, commonly 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LocalPref int64 `json:"localPref,omitempty"`

	// communities are the BGP communities (RFC 1997) of the routes, as
	// "asn:value" with both halves 0 to 65535. For example ["64500:100"], or
	// the well-known ["65535:65281"], NO_EXPORT.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=11
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[0-9]{1,5}:[0-9]{1,5}$') && self.split(':', 2).all(half, int(half) <= 65535)",message="must be asn:value with both halves 0 to 65535, such as 64500:100"
	Communities []string `json:"communities,omitempty"`
}

// BGPAdvertisementStatus is what became of the advertisement.
type BGPAdvertisementStatus struct {
	// conditions tell how the advertisement does. Ready is True when it can be
	// used; otherwise its message says what is wrong.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BGPAdvertisementList is a list of BGPAdvertisements.
//
// +kubebuilder:object:root=true
type BGPAdvertisementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BGPAdvertisement `json:"items"`
}
