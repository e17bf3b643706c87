package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPAddressPool is a set of addresses that Services of type LoadBalancer get
// theirs from. A pool announces nothing by itself: an L2Advertisement or a
// BGPAdvertisement does.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=flpool,categories=fairlead
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name="Auto Assign",type=boolean,JSONPath=`.spec.autoAssign`
// +kubebuilder:printcolumn:name="IPv4 Used",type=integer,JSONPath=`.status.assignedIPv4`
// +kubebuilder:printcolumn:name="IPv4 Free",type=integer,JSONPath=`.status.availableIPv4`
// +kubebuilder:printcolumn:name="IPv6 Used",type=integer,JSONPath=`.status.assignedIPv6`
// +kubebuilder:printcolumn:name="IPv6 Free",type=integer,JSONPath=`.status.availableIPv6`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPAddressPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which addresses the pool holds and who may get them.
	// +required
	Spec IPAddressPoolSpec `json:"spec"`
	// status counts the addresses and says whether the pool is in use. It is
	// written by Fairlead; do not edit it.
	// +optional
	Status IPAddressPoolStatus `json:"status,omitzero"`
}

// IPAddressPoolSpec says which addresses the pool holds and who may get them.
type IPAddressPoolSpec struct {
	// addresses are the addresses of the pool, IPv4 and IPv6 in any mix, 1 to
	// 64 entries. An entry is a CIDR ("203.0.113.0/24", "2001:db8:113::/64") or
	// a range from the first to the last address ("192.0.2.10-192.0.2.99").
	// All addresses of an entry are given out, the first and the last of a CIDR
	// too; see avoidBuggyIPs. No two pools may share an address.
	// +required
	Addresses AddressRanges `json:"addresses"`

	// autoAssign tells whether a Service that asks for no pool and no address
	// may get one from here. With false, the pool only serves Services that
	// name it (annotation fairlead.dev/pool) or one of its addresses
	// (annotation fairlead.dev/addresses). Default: true.
	// +optional
	// +kubebuilder:default=true
	AutoAssign *bool `json:"autoAssign,omitempty"`

	// avoidBuggyIPs keeps IPv4 addresses that end in .0 or .255 from being
	// given out: some old equipment takes them for network and broadcast
	// addresses whatever the netmask. Default: false.
	// +optional
	AvoidBuggyIPs bool `json:"avoidBuggyIPs,omitempty"`
}

// IPAddressPoolStatus is what became of the pool.
type IPAddressPoolStatus struct {
	// conditions tell how the pool does. Ready is True when it parses and
	// shares no address with an older pool; otherwise its message says what is
	// wrong, and no new address is given from the pool.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// assignedIPv4 is how many IPv4 addresses of the pool Services hold.
	// +optional
	AssignedIPv4 int64 `json:"assignedIPv4"`
	// assignedIPv6 is how many IPv6 addresses of the pool Services hold.
	// +optional
	AssignedIPv6 int64 `json:"assignedIPv6"`
	// availableIPv4 is how many IPv4 addresses are left to give out.
	// +optional
	AvailableIPv4 int64 `json:"availableIPv4"`
	// availableIPv6 is how many IPv6 addresses are left to give out; it stops
	// counting at 9223372036854775807.
	// +optional
	AvailableIPv6 int64 `json:"availableIPv6"`
}

// IPAddressPoolList is a list of IPAddressPools.
//
// +kubebuilder:object:root=true
type IPAddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []IPAddressPool `json:"items"`
}
