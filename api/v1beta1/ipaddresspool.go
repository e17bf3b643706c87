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
// +kubebuilder:printcolumn:name="Priority",type=integer,priority=1,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Disabled",type=boolean,priority=1,JSONPath=`.spec.disabled`
// +kubebuilder:printcolumn:name="IPv4 Used",type=integer,JSONPath=`.status.assignedIPv4`
// +kubebuilder:printcolumn:name="IPv4 Free",type=integer,JSONPath=`.status.availableIPv4`
// +kubebuilder:printcolumn:name="IPv4 Total",type=integer,priority=1,JSONPath=`.status.totalIPv4`
// +kubebuilder:printcolumn:name="IPv6 Used",type=integer,JSONPath=`.status.assignedIPv6`
// +kubebuilder:printcolumn:name="IPv6 Free",type=integer,JSONPath=`.status.availableIPv6`
// +kubebuilder:printcolumn:name="IPv6 Total",type=integer,priority=1,JSONPath=`.status.totalIPv6`
// +kubebuilder:printcolumn:name="Has Capacity",type=string,JSONPath=`.status.conditions[?(@.type=="HasCapacity")].status`
// +kubebuilder:printcolumn:name="Advertised",type=string,JSONPath=`.status.conditions[?(@.type=="Advertised")].status`
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
//
// +kubebuilder:validation:XValidation:rule="!has(self.priority) || !has(self.serviceAllocation) || !has(self.serviceAllocation.priority)",message="give the priority once: in priority or in serviceAllocation.priority, which MetalLB knows",fieldPath=".priority"
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

	// disabled keeps the pool from giving any new address, also to Services that
	// ask for it. Services keep the addresses that they have, and these stay
	// announced. Default: false.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// priority says which of several pools a Service gets an address from: the
	// one with the lowest number that has one free. 1 to 2147483647; left out
	// or 0, the pool comes after all with a number, as in MetalLB. Pools of
	// equal priority: first those whose serviceAllocation chooses the Service,
	// then by name.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Priority int32 `json:"priority,omitempty"`

	// serviceAllocation limits which Services get addresses from the pool, also
	// on request. Those that have one keep it when this changes. The namespaces hold
	// for IPReservations too. Left out: all.
	// +optional
	ServiceAllocation *ServiceAllocation `json:"serviceAllocation,omitempty"`

	// maxPerNamespace is how many addresses of the pool the Services and IPReservations
	// of one namespace may have together, of both families; one that several of them
	// have counts once. What they have stays when it is lowered. Left out: any number.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxPerNamespace *int32 `json:"maxPerNamespace,omitempty"`

	// coolDown is how long an address that a Service has left, or that was freed
	// by its deletion, is kept from all others; a Service of the same namespace
	// and name gets it back meanwhile, and an IPReservation of the namespace that
	// names it. Addresses of IPReservations cool down alike. 1s to 168h in whole seconds, for example
	// 10m. Left out: others may have it at once.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms])+$') && duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="coolDown must be 1s to 168h in whole seconds, such as 10m"
	CoolDown *metav1.Duration `json:"coolDown,omitempty"`

	// onPoolChange says what happens to a Service whose address an edit takes out
	// of addresses. Keep: it keeps the address, which stays announced as one of
	// this pool, and the condition Ready names the Service. Renumber: it gets
	// another address, and keeps the old one until there is one. Addresses of
	// IPReservations alike, but for those that spec.addresses of one names: they stay.
	// Default: Keep.
	// +optional
	// +kubebuilder:default=Keep
	// +kubebuilder:validation:Enum=Keep;Renumber
	OnPoolChange PoolChange `json:"onPoolChange,omitempty"`

	// avoidBuggyIPs keeps IPv4 addresses that end in .0 or .255 from being
	// given out: some old equipment takes them for network and broadcast
	// addresses whatever the netmask. Default: false.
	// +optional
	AvoidBuggyIPs bool `json:"avoidBuggyIPs,omitempty"`
}

// PoolChange is what becomes of addresses in use that an edit takes out of a pool.
type PoolChange string

// The values of onPoolChange.
const (
	// PoolChangeKeep leaves them to the Services that have them.
	PoolChangeKeep PoolChange = "Keep"
	// PoolChangeRenumber gives these Services other addresses.
	PoolChangeRenumber PoolChange = "Renumber"
)

// ServiceAllocation chooses Services: those of the namespaces that namespaces or
// namespaceSelectors choose, and among them those that serviceSelectors choose. What
// is left out chooses all.
type ServiceAllocation struct {
	// priority is the priority of the pool, in the place where MetalLB has it.
	// 1 to 2147483647; left out or 0: after all pools with a number.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Priority int32 `json:"priority,omitempty"`

	// namespaces are the names of namespaces, for example [shop]. Together with
	// namespaceSelectors: a namespace is meant when either chooses it. Both left
	// out: all namespaces.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be the name of a namespace: lower case letters, digits and dashes"
	Namespaces []string `json:"namespaces,omitempty"`

	// namespaceSelectors choose namespaces by their labels; a namespace is meant
	// when one of them matches. For example [{matchLabels: {tenant: a}}].
	// +optional
	NamespaceSelectors Selectors `json:"namespaceSelectors,omitempty"`

	// serviceSelectors choose Services by their labels; a Service is meant when
	// one of them matches. Left out: all Services of the namespaces. For example
	// [{matchLabels: {exposure: public}}].
	// +optional
	ServiceSelectors Selectors `json:"serviceSelectors,omitempty"`
}

// IPAddressPoolStatus is what became of the pool.
type IPAddressPoolStatus struct {
	// conditions tell how the pool does. Ready is True when it parses and
	// shares no address with an older pool; otherwise its message says what is
	// wrong, and no new address is given from the pool. HasCapacity is True when
	// the pool can give an address of each of its families. Advertised is False when
	// addresses of the pool are held and no L2Advertisement and no BGPAdvertisement covers
	// it, and Unknown when none does and none are held.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// assignedIPv4 is how many IPv4 addresses of the pool Services and IPReservations
	// hold.
	// +optional
	AssignedIPv4 int64 `json:"assignedIPv4"`
	// assignedIPv6 is how many IPv6 addresses of the pool Services and IPReservations
	// hold.
	// +optional
	AssignedIPv6 int64 `json:"assignedIPv6"`
	// reservedIPv4 is how many of assignedIPv4 IPReservations hold, with or without a
	// Service on them.
	// +optional
	ReservedIPv4 int64 `json:"reservedIPv4,omitempty"`
	// reservedIPv6 is how many of assignedIPv6 IPReservations hold, with or without a
	// Service on them.
	// +optional
	ReservedIPv6 int64 `json:"reservedIPv6,omitempty"`
	// availableIPv4 is how many IPv4 addresses are left to give out.
	// +optional
	AvailableIPv4 int64 `json:"availableIPv4"`
	// availableIPv6 is how many IPv6 addresses are left to give out; it stops
	// counting at 9223372036854775807.
	// +optional
	AvailableIPv6 int64 `json:"availableIPv6"`
	// totalIPv4 is how many IPv4 addresses the pool can give in all; those that
	// avoidBuggyIPs leaves out do not count.
	// +optional
	TotalIPv4 int64 `json:"totalIPv4"`
	// totalIPv6 is how many IPv6 addresses the pool can give in all; it stops
	// counting at 9223372036854775807.
	// +optional
	TotalIPv6 int64 `json:"totalIPv6"`

	// addresses are those that count as the pool's: what spec.addresses says, and
	// what Services and IPReservations still have of that which an edit has taken out.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	Addresses []string `json:"addresses,omitempty"`

	// coolingDown are the addresses that others than the one that had them cannot
	// get yet (spec.coolDown). At most 256 are listed, the latest ones.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=256
	CoolingDown []CoolingAddress `json:"coolingDown,omitempty"`
}

// CoolingAddress is an address that was freed a short time ago.
type CoolingAddress struct {
	// address that was freed.
	// +required
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address"`
	// service that had it, or IPReservation, as namespace/name.
	// +required
	// +kubebuilder:validation:MaxLength=320
	Service string `json:"service"`
	// until when it is kept from others.
	// +required
	Until metav1.Time `json:"until"`
}

// IPAddressPoolList is a list of IPAddressPools.
//
// +kubebuilder:object:root=true
type IPAddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []IPAddressPool `json:"items"`
}
