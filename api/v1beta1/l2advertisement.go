package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// L2Advertisement makes addresses reachable on the local network: for each
// IPv4 address one node answers ARP; IPv6 addresses are not answered for yet.
// Without any L2Advertisement nothing is answered for.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=l2advertisements,scope=Cluster,shortName=fll2,categories=fairlead
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.spec.ipAddressPools`
// +kubebuilder:printcolumn:name="Interfaces",type=string,JSONPath=`.spec.interfaces`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type L2Advertisement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which addresses to answer for, on which nodes and interfaces.
	// Left out, every address is answered for by any node.
	// +optional
	Spec L2AdvertisementSpec `json:"spec,omitzero"`
	// status says whether the advertisement is in use. It is written by
	// Fairlead; do not edit it.
	// +optional
	Status L2AdvertisementStatus `json:"status,omitzero"`
}

// L2AdvertisementSpec says which addresses to answer for, and where. The parts
// narrow each other: an address must match the pools and the Service must match
// serviceSelectors.
type L2AdvertisementSpec struct {
	// ipAddressPools are the names of the pools whose addresses to answer for,
	// for example [layer2]. Together with ipAddressPoolSelectors: a pool is
	// meant when either names it. Both left out: all pools.
	// +optional
	IPAddressPools ObjectNames `json:"ipAddressPools,omitempty"`

	// ipAddressPoolSelectors choose pools by their labels; a pool is meant when
	// one of them matches. For example [{matchLabels: {network: lan}}].
	// +optional
	IPAddressPoolSelectors Selectors `json:"ipAddressPoolSelectors,omitempty"`

	// nodeSelectors choose by their labels the nodes that may answer; a node
	// may when one of them matches. Left out: all nodes. For example
	// [{matchLabels: {kubernetes.io/hostname: worker-1}}].
	// +optional
	NodeSelectors Selectors `json:"nodeSelectors,omitempty"`

	// serviceSelectors choose by their labels the Services whose addresses to
	// answer for; a Service is meant when one of them matches. Left out: all
	// Services. For example [{matchLabels: {exposure: lan}}].
	// +optional
	ServiceSelectors Selectors `json:"serviceSelectors,omitempty"`

	// interfaces are the names of the network interfaces to answer on, for
	// example [eth0, bond0.100]. A node that has none of them does not take
	// part. Left out: the interfaces on whose network the address is.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=15
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[^/:[:space:]]+$') && !(self in ['.', '..'])",message="must be the name of a network interface, without white space, slash and colon"
	Interfaces []string `json:"interfaces,omitempty"`
}

// L2AdvertisementStatus is what became of the advertisement.
type L2AdvertisementStatus struct {
	// conditions tell how the advertisement does. Ready is True when it can be
	// used; otherwise its message says what is wrong.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// L2AdvertisementList is a list of L2Advertisements.
//
// +kubebuilder:object:root=true
type L2AdvertisementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []L2Advertisement `json:"items"`
}
