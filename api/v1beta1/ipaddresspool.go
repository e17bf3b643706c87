package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPAddressPool is a set of addresses from which Services of type LoadBalancer
// get theirs. A pool does not announce its addresses: an L2Advertisement or a
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

	// spec says which addresses the pool holds and which Services may get them.
	// +required
	Spec IPAddressPoolSpec `json:"spec"`
	// status counts the addresses and says whether the pool is in use. It is
	// written by Fairlead; do not edit it.
	// +optional
	Status IPAddressPoolStatus `json:"status,omitzero"`
}

// IPAddressPoolSpec says which addresses the pool holds and which Services may get them.
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

	// disabled stops the pool from giving out new addresses, even to Services that
	// ask for one. Services keep the addresses that they have, and these stay
	// announced. Default: false.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// priority orders the pools that a Service may get an address from: the pool
	// with the lowest number that has a free address gives it. 1 to 2147483647;
	// left out or 0, the pool comes after all pools with a number, as in MetalLB.
	// Among pools of equal priority, those whose serviceAllocation selects the
	// Service come first, then they are ordered by name.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Priority int32 `json:"priority,omitempty"`

	// serviceAllocation limits which Services get addresses from the pool, even
	// if they ask for one. Services that have an address keep it when this
	// changes. The namespaces apply to IPReservations too. Left out: all
	// Services.
	// +optional
	ServiceAllocation *ServiceAllocation `json:"serviceAllocation,omitempty"`

	// maxPerNamespace is how many addresses of the pool the Services and
	// IPReservations of one namespace may have in total, of both families. An
	// address that several of them have counts once. When the number is lowered,
	// they keep what they have. Left out: any number.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxPerNamespace *int32 `json:"maxPerNamespace,omitempty"`

	// coolDown is how long an address that a Service gave up, or that its
	// deletion freed, is withheld from others. Meanwhile a Service of the same
	// namespace and name gets it back, and so does an IPReservation of that
	// namespace that names it. Addresses of IPReservations cool down in the same
	// way. 1s to 168h in whole seconds, for example 10m. Left out: others may
	// have the address at once.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms])+$') && duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="coolDown must be 1s to 168h in whole seconds, such as 10m"
	CoolDown *metav1.Duration `json:"coolDown,omitempty"`

	// onPoolChange says what happens to a Service when an edit removes its
	// address from addresses. Keep: the Service keeps the address, which stays
	// announced as one of this pool, and the condition Ready names the Service.
	// Renumber: the Service gets another address, and keeps the old one until
	// one is available, or as long as it asks for that one by itself. Addresses of IPReservations are treated in the same way,
	// except that those named in an IPReservation's spec.addresses always stay.
	// Default: Keep.
	// +optional
	// +kubebuilder:default=Keep
	// +kubebuilder:validation:Enum=Keep;Renumber
	OnPoolChange PoolChange `json:"onPoolChange,omitempty"`

	// avoidBuggyIPs keeps IPv4 addresses that end in .0 or .255 from being
	// given out: some old equipment takes them for network and broadcast
	// addresses, whatever the netmask is. Default: false.
	// +optional
	AvoidBuggyIPs bool `json:"avoidBuggyIPs,omitempty"`
}

// PoolChange is what happens to addresses in use that an edit removes from a
// pool.
type PoolChange string

// The values of onPoolChange.
const (
	// PoolChangeKeep leaves them to the Services that have them.
	PoolChangeKeep PoolChange = "Keep"
	// PoolChangeRenumber gives these Services other addresses.
	PoolChangeRenumber PoolChange = "Renumber"
)

// ServiceAllocation selects Services: those in the namespaces that
// namespaces or namespaceSelectors select, and among them those that
// serviceSelectors select. A field that is left out selects everything.
type ServiceAllocation struct {
	// priority is the priority of the pool, here for compatibility with MetalLB.
	// 1 to 2147483647; left out or 0: after all pools with a number.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Priority int32 `json:"priority,omitempty"`

	// namespaces are the names of namespaces, for example [shop]. A namespace is
	// selected if this field or namespaceSelectors selects it. Both left out: all
	// namespaces.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be the name of a namespace: lower case letters, digits and dashes"
	Namespaces []string `json:"namespaces,omitempty"`

	// namespaceSelectors select namespaces by their labels; a namespace is
	// selected if at least one of them matches. For example [{matchLabels:
	// {tenant: a}}].
	// +optional
	NamespaceSelectors Selectors `json:"namespaceSelectors,omitempty"`

	// serviceSelectors select Services by their labels; a Service is selected if
	// at least one of them matches. Left out: all Services in the namespaces. For
	// example [{matchLabels: {exposure: public}}].
	// +optional
	ServiceSelectors Selectors `json:"serviceSelectors,omitempty"`
}

// IPAddressPoolStatus is the observed state of the pool.
type IPAddressPoolStatus struct {
	// conditions say whether the pool is in use. Ready is True when the pool is
	// valid and shares no address with an older pool; otherwise its message says
	// what is wrong, and the pool gives no new addresses. HasCapacity is True
	// when the pool can give an address of each of its families. Advertised is
	// True when an L2Advertisement or a BGPAdvertisement covers the pool. If
	// none does, Advertised is False while addresses of the pool are held, and
	// Unknown while none are.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// assignedIPv4 is how many IPv4 addresses of the pool Services and
	// IPReservations hold.
	// +optional
	AssignedIPv4 int64 `json:"assignedIPv4"`
	// assignedIPv6 is how many IPv6 addresses of the pool Services and
	// IPReservations hold.
	// +optional
	AssignedIPv6 int64 `json:"assignedIPv6"`
	// reservedIPv4 is how many of the assigned IPv4 addresses IPReservations
	// hold, with or without a Service on them.
	// +optional
	ReservedIPv4 int64 `json:"reservedIPv4,omitempty"`
	// reservedIPv6 is how many of the assigned IPv6 addresses IPReservations
	// hold, with or without a Service on them.
	// +optional
	ReservedIPv6 int64 `json:"reservedIPv6,omitempty"`
	// availableIPv4 is how many IPv4 addresses are left to give out.
	// +optional
	AvailableIPv4 int64 `json:"availableIPv4"`
	// availableIPv6 is how many IPv6 addresses are left to give out, at most
	// 9223372036854775807.
	// +optional
	AvailableIPv6 int64 `json:"availableIPv6"`
	// totalIPv4 is how many IPv4 addresses the pool has to give out; those that
	// avoidBuggyIPs excludes do not count.
	// +optional
	TotalIPv4 int64 `json:"totalIPv4"`
	// totalIPv6 is how many IPv6 addresses the pool has to give out, at most
	// 9223372036854775807.
	// +optional
	TotalIPv6 int64 `json:"totalIPv6"`

	// addresses are the addresses that count as the pool's: those in
	// spec.addresses, and those that an edit has removed from there while a
	// Service or an IPReservation has them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	Addresses []string `json:"addresses,omitempty"`

	// coolingDown are the addresses that are withheld from all but the last holder
	// (spec.coolDown). At most 256 are listed, those freed last.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=256
	CoolingDown []CoolingAddress `json:"coolingDown,omitempty"`
}

// CoolingAddress is an address that was freed a short time ago.
type CoolingAddress struct {
	// address is the address that was freed.
	// +required
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address"`
	// service is the Service, or the IPReservation, that had it, as
	// namespace/name.
	// +required
	// +kubebuilder:validation:MaxLength=320
	Service string `json:"service"`
	// until is when others may have it.
	// +required
	Until metav1.Time `json:"until"`
}
