package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BGPAdvertisement makes addresses reachable through routers: every node that
// can serve an address announces a route to it (a /32 or a /128, unless an
// aggregation length is given) to its BGPPeers, and routers spread connections
// over the nodes. Without a BGPAdvertisement, nothing is announced.
//
// Several advertisements may make one route. Where they differ, the value
// that routers prefer is used: the highest localPref, the lowest med, the
// fewest asPathPrepend, the highest linkBandwidthPerEndpoint. An
// advertisement that leaves such a field out does not count for that field.
// Communities add up.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=bgpadvertisements,scope=Cluster,shortName=flbgp,categories=fairlead
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.spec.ipAddressPools`
// +kubebuilder:printcolumn:name="Peers",type=string,JSONPath=`.spec.peers`
// +kubebuilder:printcolumn:name="Communities",type=string,priority=1,JSONPath=`.spec.communities`
// +kubebuilder:printcolumn:name="Local Pref",type=integer,priority=1,JSONPath=`.spec.localPref`
// +kubebuilder:printcolumn:name="MED",type=integer,priority=1,JSONPath=`.spec.med`
// +kubebuilder:printcolumn:name="Prepend",type=integer,priority=1,JSONPath=`.spec.asPathPrepend`
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

// BGPAdvertisementSpec says which addresses to announce, from which nodes, to which
// peers and with which attributes. All fields must match: the address must be of
// one of the pools, and its Service must match serviceSelectors.
//
// +kubebuilder:validation:XValidation:rule="!has(self.serviceSelectors) || size(self.serviceSelectors) == 0 || (!has(self.aggregationLength) || self.aggregationLength == 32) && (!has(self.aggregationLengthV6) || self.aggregationLengthV6 == 128)",message="serviceSelectors and an aggregation length exclude each other, since one route is for the addresses of all Services within it: leave one of them out",fieldPath=".serviceSelectors"
// +kubebuilder:validation:XValidation:rule="!has(self.linkBandwidthPerEndpoint) || (!has(self.aggregationLength) || self.aggregationLength == 32) && (!has(self.aggregationLengthV6) || self.aggregationLengthV6 == 128)",message="linkBandwidthPerEndpoint and an aggregation length exclude each other, since one route is for the endpoints of all addresses within it: leave one of them out",fieldPath=".linkBandwidthPerEndpoint"
type BGPAdvertisementSpec struct {
	// ipAddressPools are the names of the pools whose addresses to announce,
	// for example [bgp]. A pool is selected if this field or
	// ipAddressPoolSelectors selects it. Both left out: all pools.
	// +optional
	IPAddressPools ObjectNames `json:"ipAddressPools,omitempty"`

	// ipAddressPoolSelectors select pools by their labels; a pool is selected if
	// at least one of them matches. For example [{matchLabels: {network:
	// public}}].
	// +optional
	IPAddressPoolSelectors Selectors `json:"ipAddressPoolSelectors,omitempty"`

	// nodeSelectors select the nodes that announce by their labels; a node does if
	// at least one of them matches. Left out: all nodes. For example
	// [{matchLabels: {topology.kubernetes.io/zone: a}}].
	// +optional
	NodeSelectors Selectors `json:"nodeSelectors,omitempty"`

	// serviceSelectors select the Services whose addresses to announce by their
	// labels; a Service is selected if at least one of them matches. Left out: all
	// Services. For example [{matchLabels: {exposure: public}}].
	// +optional
	ServiceSelectors Selectors `json:"serviceSelectors,omitempty"`

	// peers are the names of the BGPPeers to announce to, for example
	// [router-a]. Left out: all peers of the node.
	// +optional
	Peers ObjectNames `json:"peers,omitempty"`

	// aggregationLength is the length of the announced IPv4 prefixes, 1 to 32.
	// For example 24: one route to 192.0.2.0/24 as long as the node can serve
	// any address in it. Where the pool does not contain the whole prefix, its
	// addresses are announced one by one instead. A router that has such a route
	// sends the node the traffic for all addresses in it, so it is not meant for
	// Services with externalTrafficPolicy Local. Left out: 32, a route to each
	// address.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	AggregationLength *int32 `json:"aggregationLength,omitempty"`

	// aggregationLengthV6 is the same for IPv6, 1 to 128, for example 64. Left
	// out: 128, a route to each address.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	AggregationLengthV6 *int32 `json:"aggregationLengthV6,omitempty"`

	// localPref is the LOCAL_PREF of the routes, 0 to 4294967295; among routes
	// to one address, routers in the same AS prefer the highest. It is only sent
	// to peers with the nodes' own ASN (RFC 4271, 5.1.5). Left out or 0: not set,
	// and routers use their own default, commonly 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LocalPref int64 `json:"localPref,omitempty"`

	// med is the MULTI_EXIT_DISC of the routes, 0 to 4294967295; among routes
	// from one neighboring AS, routers prefer the lowest (RFC 4271, 9.1.2.2). Left
	// out: not sent, which most routers treat as 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MED *int64 `json:"med,omitempty"`

	// asPathPrepend is how many extra times the nodes' AS number appears in the
	// AS path, 0 to 16, so that routers prefer other paths; for example 2. It only
	// applies to peers with another ASN. Left out or 0: no extra times.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	ASPathPrepend int32 `json:"asPathPrepend,omitempty"`

	// linkBandwidthPerEndpoint is how much traffic an endpoint can take, 1 to
	// 100000 Mbit/s, for example 1000. Routes to Services with
	// externalTrafficPolicy Local then carry this number times the node's
	// endpoints as the link bandwidth extended community, and routers that
	// honour it send nodes traffic in proportion to their endpoints. Under
	// policy Cluster every node reaches all endpoints, and its routes carry the
	// bandwidth of one. Set it for all routes to an address: routers differ in
	// what they do if only some have it. Left out: not sent, and routers treat
	// all nodes alike.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	LinkBandwidthPerEndpoint *int32 `json:"linkBandwidthPerEndpoint,omitempty"`

	// withoutEndpoints also announces addresses whose Services have no usable
	// endpoint anywhere, for example because routers or monitoring must see the
	// route all the same. All nodes that the advertisement selects then announce
	// them, and refuse connections. As soon as there is an endpoint, the usual
	// rules apply again. Default: false, only addresses that a node can serve
	// are announced.
	// +optional
	WithoutEndpoints bool `json:"withoutEndpoints,omitempty"`

	// communities are the communities of the routes: "asn:value" (RFC 1997) with
	// both halves 0 to 65535, "large:asn:value:value" (RFC 8092) with each part
	// 0 to 4294967295, the name of a well-known one (no-export, no-advertise,
	// no-export-subconfed, no-peer, blackhole, graceful-shutdown, accept-own),
	// or a name that a Community defines. While no Community defines it, the
	// advertisement is not in use: routes without the community might go where
	// they must not. For example ["64500:100", "large:64500:1:100", no-export,
	// vpn-only].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[0-9]{1,5}:[0-9]{1,5}$') && self.split(':', 2).all(half, int(half) <= 65535) || self.matches('^large(:[0-9]{1,10}){3}$') && self.substring(6).split(':', 3).all(part, int(part) <= 4294967295) || self.matches('^[A-Za-z]([-_.A-Za-z0-9]*[A-Za-z0-9])?$')",message="must be asn:value with both halves 0 to 65535, such as 64500:100, large:asn:value:value, a well-known name such as no-export, or a name that a Community has"
	Communities []string `json:"communities,omitempty"`
}

// BGPAdvertisementStatus is the observed state of the advertisement.
type BGPAdvertisementStatus struct {
	// conditions say whether the advertisement is in use. Ready is True when it
	// can be used; otherwise its message says what is wrong.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
