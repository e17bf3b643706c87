package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// L2Advertisement makes addresses reachable on the local network: for each
// IPv4 address one node answers ARP, for each IPv6 address one node answers
// neighbour solicitations. Without an L2Advertisement, no node answers for
// any address.
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
	// Left out: every address, on all nodes.
	// +optional
	Spec L2AdvertisementSpec `json:"spec,omitzero"`
	// status says whether the advertisement is in use. It is written by
	// Fairlead; do not edit it.
	// +optional
	Status L2AdvertisementStatus `json:"status,omitzero"`
}

// L2AdvertisementSpec says which addresses to answer for, and where. All
// fields must match: the address must be of one of the pools, and its
// Service must match serviceSelectors.
type L2AdvertisementSpec struct {
	// ipAddressPools are the names of the pools whose addresses to answer for,
	// for example [layer2]. A pool is selected if this field or
	// ipAddressPoolSelectors selects it. Both left out: all pools.
	// +optional
	IPAddressPools ObjectNames `json:"ipAddressPools,omitempty"`

	// ipAddressPoolSelectors select pools by their labels; a pool is selected if
	// at least one of them matches. For example [{matchLabels: {network: lan}}].
	// +optional
	IPAddressPoolSelectors Selectors `json:"ipAddressPoolSelectors,omitempty"`

	// nodeSelectors select the nodes that may answer by their labels; a node may
	// if at least one of them matches. Left out: all nodes. For example
	// [{matchLabels: {kubernetes.io/hostname: worker-1}}].
	// +optional
	NodeSelectors Selectors `json:"nodeSelectors,omitempty"`

	// preferredNodeSelectors say which of these nodes come first: those whose
	// matching weights have the highest sum, as long as one of them is alive and
	// able to answer. Nodes with equal sums share the addresses. Other nodes
	// answer when the preferred ones cannot. For example [{weight: 100,
	// preference: {matchLabels: {example.com/edge: "true"}}}].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	PreferredNodeSelectors []PreferredNodeSelector `json:"preferredNodeSelectors,omitempty"`

	// serviceSelectors select the Services whose addresses to answer for by their
	// labels; a Service is selected if at least one of them matches. Left out: all
	// Services. For example [{matchLabels: {exposure: lan}}].
	// +optional
	ServiceSelectors Selectors `json:"serviceSelectors,omitempty"`

	// interfaces are the names of the network interfaces to answer on, for
	// example [eth0, bond0.100]. A node that has none of them does not take
	// part. Left out: the interfaces on whose network the address is or, if a
	// node has none, those with its InternalIP.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=15
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[^/:[:space:]]+$') && !(self in ['.', '..'])",message="must be the name of a network interface, without white space, slash and colon"
	Interfaces []string `json:"interfaces,omitempty"`

	// announceInterval is how often the node that answers for an address announces
	// it again, once the announcements of a takeover are over: by gratuitous ARP or
	// unsolicited neighbour advertisements. Switches forget a MAC from which nothing
	// comes, commonly after 5m, and then send its traffic out of all ports. Of
	// several advertisements that select the node for an address, the one with the
	// shortest interval counts, 0s apart. Whole seconds, 5s to 1h, for example 30s;
	// 0s: never again. Default: 1m.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms])+$') && (duration(self) == duration('0s') || duration(self) >= duration('5s') && duration(self) <= duration('1h'))",message="announceInterval must be 5s to 1h in whole seconds, such as 1m, or 0s for never"
	AnnounceInterval *metav1.Duration `json:"announceInterval,omitempty"`

	// preempt says whether a candidate that comes before the node which answers for
	// an address takes the address from it, as VRRP's Preempt_Mode does. Always: it
	// does once it is alive and able to answer, so that an address moves back when
	// its node comes back. Never: the node that answers keeps the address for as
	// long as it is alive, a candidate and able to answer. Of several advertisements
	// for an address, Never of one counts for all of its nodes. Default: Always.
	// +optional
	// +kubebuilder:default=Always
	// +kubebuilder:validation:Enum=Always;Never
	Preempt Preemption `json:"preempt,omitempty"`
}

// Preemption says whether the node that answers for an address gives it back.
type Preemption string

// The values of preempt.
const (
	// PreemptAlways: to each candidate that comes before it, once that one is able.
	PreemptAlways Preemption = "Always"
	// PreemptNever: to none while it is able to answer itself.
	PreemptNever Preemption = "Never"
)

// PreferredNodeSelector gives a weight to the nodes that a selector matches.
type PreferredNodeSelector struct {
	// weight is added to the sum of every node that preference matches, 1 to 100.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`

	// preference selects nodes by their labels, among those that nodeSelectors
	// select. Empty, it selects them all. For example
	// {matchLabels: {example.com/edge: "true"}}.
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || size(self.matchExpressions) <= 16",message="at most 16 matchExpressions may be in one selector"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15].all(i, i >= size(self.matchExpressions) || (self.matchExpressions[i].operator in ['In', 'NotIn'] ? has(self.matchExpressions[i].values) && size(self.matchExpressions[i].values) > 0 : self.matchExpressions[i].operator in ['Exists', 'DoesNotExist'] && (!has(self.matchExpressions[i].values) || size(self.matchExpressions[i].values) == 0)))",message="the operator of each of matchExpressions must be In or NotIn, with values, or Exists or DoesNotExist, without values"
	Preference metav1.LabelSelector `json:"preference"`
}

// L2AdvertisementStatus is the observed state of the advertisement.
type L2AdvertisementStatus struct {
	// conditions say whether the advertisement is in use. Ready is True when it
	// can be used; otherwise its message says what is wrong.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
