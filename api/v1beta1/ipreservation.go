package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPReservation holds addresses of a pool for its namespace, whether or not
// a Service uses them, so that an address outlives its Service. Services in
// the namespace get them with the annotation fairlead.dev/reservation, or by
// asking for one of the addresses.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=flres,categories=fairlead
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.status.addresses`
// +kubebuilder:printcolumn:name="In Use",type=integer,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="Pool",type=string,priority=1,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Allocated",type=string,JSONPath=`.status.conditions[?(@.type=="Allocated")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Allocated")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPReservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which addresses to hold, or how many.
	// +required
	Spec IPReservationSpec `json:"spec"`
	// status has the addresses that are held, and which Services use them. It is
	// written by Fairlead, and is where the addresses are kept; do not edit it.
	// +optional
	Status IPReservationStatus `json:"status,omitzero"`
}

// IPReservationSpec says which addresses to hold, or how many.
//
// +kubebuilder:validation:XValidation:rule="has(self.addresses) != has(self.count)",message="give either addresses, to hold these, or count, to hold any"
// +kubebuilder:validation:XValidation:rule="!has(self.families) || !has(self.addresses)",message="families go with count: addresses have theirs",fieldPath=".families"
type IPReservationSpec struct {
	// addresses are the addresses to hold, 1 to 64, for example [203.0.113.7].
	// Each must be in a pool, and must be free or belong to a Service in the same
	// namespace, which keeps it. An address that is removed here is given back.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="must be an IP address such as 192.0.2.10, without mask or zone, IPv4 not written as ::ffff:192.0.2.10"
	// +kubebuilder:validation:items:XValidation:rule="!isIP(self) || ip.isCanonical(self)",message="must be written in the shortest form and in lower case: 2001:db8::a, not 2001:0DB8::A"
	// +kubebuilder:validation:items:XValidation:rule="!isIP(self) || [ip(self)].all(a, a.isGlobalUnicast() || a.family() == 4 && a.isLinkLocalUnicast())",message="must be a unicast address that other machines can reach: not 0.0.0.0 or ::, no loopback, multicast, broadcast or IPv6 link-local address"
	Addresses []string `json:"addresses,omitempty"`

	// count is how many addresses of each family to hold, whichever are free, 1 to
	// 64. When it is lowered, addresses without a Service are given back first,
	// starting with the highest.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Count *int32 `json:"count,omitempty"`

	// families are the address families of which to hold count addresses each, for
	// example [IPv4, IPv6]. Left out: IPv4 only.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Families []AddressFamily `json:"families,omitempty"`

	// pool is the name of the IPAddressPool to take the addresses from; it need
	// not have autoAssign. Left out: with addresses, any pool; with count, the
	// first pool that has autoAssign and does not select Services by their
	// labels.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of an IPAddressPool: lower case letters, digits, dashes and dots, such as public"
	Pool string `json:"pool,omitempty"`
}

// AddressFamily is a family of addresses, as Kubernetes spells it.
//
// +kubebuilder:validation:Enum=IPv4;IPv6
type AddressFamily string

// IPReservationStatus is what is held.
type IPReservationStatus struct {
	// conditions say whether the reservation is fulfilled. Allocated is True
	// when it holds all that it asks for; otherwise its message says what is
	// missing and why. Ready is True when the spec is valid; otherwise the
	// reservation keeps what it holds and gets nothing new.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// addresses are the addresses that are held for the namespace.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=45
	Addresses []string `json:"addresses,omitempty"`

	// used is how many of the addresses Services have.
	// +optional
	Used int32 `json:"used"`

	// inUse are the addresses that Services have, and which Services.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=256
	InUse []AddressInUse `json:"inUse,omitempty"`
}

// AddressInUse is a reserved address that Services use.
type AddressInUse struct {
	// address is the address that is held.
	// +required
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address"`
	// services are the names of the Services in the namespace that have it; more
	// than one if they share it. At most 16 are listed.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Services []string `json:"services"`
}
