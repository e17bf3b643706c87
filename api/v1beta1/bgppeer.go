package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BGPPeer is a router that nodes hold a BGP session with. Which addresses are
// announced to it is said by BGPAdvertisements.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=bgppeers,scope=Cluster,shortName=flpeer,categories=fairlead
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.peerAddress`
// +kubebuilder:printcolumn:name="Port",type=integer,priority=1,JSONPath=`.spec.peerPort`
// +kubebuilder:printcolumn:name="Peer ASN",type=integer,JSONPath=`.spec.peerASN`
// +kubebuilder:printcolumn:name="My ASN",type=integer,JSONPath=`.spec.myASN`
// +kubebuilder:printcolumn:name="Hold Time",type=string,priority=1,JSONPath=`.spec.holdTime`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BGPPeer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says where the router is and how to talk to it.
	// +required
	Spec BGPPeerSpec `json:"spec"`
	// status says whether the peer is in use. It is written by Fairlead; do not
	// edit it.
	// +optional
	Status BGPPeerStatus `json:"status,omitzero"`
}

// BGPPeerSpec says where the router is and how to talk to it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ebgpMultiHop) || !self.ebgpMultiHop || self.myASN != self.peerASN",message="ebgpMultiHop is for eBGP only: leave it out, or give different numbers in myASN and peerASN",fieldPath=".ebgpMultiHop"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceAddress) || !isIP(self.sourceAddress) || !isIP(self.peerAddress) || ip(self.sourceAddress).family() == ip(self.peerAddress).family()",message="sourceAddress must be of the same family as peerAddress: both IPv4 or both IPv6",fieldPath=".sourceAddress"
// +kubebuilder:validation:XValidation:rule="!has(self.keepaliveTime) || !has(self.holdTime) || !self.keepaliveTime.matches('^([0-9]{1,5}[hms])+$') || !self.holdTime.matches('^([0-9]{1,5}[hms])+$') || duration(self.keepaliveTime) >= duration('1s') && duration(self.keepaliveTime) < duration(self.holdTime)",message="keepaliveTime must be at least 1s and less than holdTime (90s when left out)",fieldPath=".keepaliveTime"
type BGPPeerSpec struct {
	// myASN is the autonomous system number of the nodes, 1 to 4294967294, for
	// example 64500. 64512 to 65534 and 4200000000 to 4294967294 are for
	// private use (RFC 6996).
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	// +kubebuilder:validation:XValidation:rule="!(self in [23456, 65535])",message="myASN must be the number of a real autonomous system: not 23456 (AS_TRANS, RFC 6793) and not 65535 (reserved, RFC 7300)"
	MyASN int64 `json:"myASN"`

	// peerASN is the autonomous system number of the router, 1 to 4294967294,
	// for example 64512. The same as myASN makes an iBGP session, another one
	// an eBGP session.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	// +kubebuilder:validation:XValidation:rule="!(self in [23456, 65535])",message="peerASN must be the number of a real autonomous system: not 23456 (AS_TRANS, RFC 6793) and not 65535 (reserved, RFC 7300)"
	PeerASN int64 `json:"peerASN"`

	// peerAddress is the IPv4 or IPv6 address of the router, for example
	// 192.0.2.1 or 2001:db8::1.
	// +required
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && (ip(self).isGlobalUnicast() || ip(self).isLoopback() || ip(self).family() == 4 && ip(self).isLinkLocalUnicast())",message="peerAddress must be the unicast address of a router, such as 192.0.2.1 or 2001:db8::1: no mask, port or zone, not as ::ffff:192.0.2.1, and no IPv6 link-local address"
	PeerAddress string `json:"peerAddress"`

	// peerPort is the TCP port on which the router listens. Default: 179.
	// +optional
	// +kubebuilder:default=179
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	PeerPort int32 `json:"peerPort,omitempty"`

	// sourceAddress is the address that sessions come from, of the family of
	// peerAddress, for example 192.0.2.11. A node that does not have it cannot
	// hold the session, so it is of use with nodeSelectors that choose one
	// node. Left out: the kernel chooses by its routes.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && (ip(self).isGlobalUnicast() || ip(self).isLoopback() || ip(self).family() == 4 && ip(self).isLinkLocalUnicast())",message="sourceAddress must be a unicast address of the node, such as 192.0.2.11 or 2001:db8::11: no mask, port or zone, not as ::ffff:192.0.2.11, and no IPv6 link-local address"
	SourceAddress string `json:"sourceAddress,omitempty"`

	// routerID is the BGP identifier of the nodes in sessions with this router,
	// written as an IPv4 address other than 0.0.0.0, for example 192.0.2.11.
	// Two nodes must not use the same one towards one router (RFC 6286), so it
	// is of use with nodeSelectors that choose one node. Left out: derived from
	// each node.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4 && !ip(self).isUnspecified()",message="routerID must be written as an IPv4 address other than 0.0.0.0, such as 192.0.2.11"
	RouterID string `json:"routerID,omitempty"`

	// holdTime is how long the router may be silent before the session is
	// taken for dead, and the other way round; the two sides use the smaller of
	// their values. Whole seconds, 3s to 65535s, for example 9s; 0s, by which RFC
	// 4271 (4.2) means never, is refused, since a route to a dead node would
	// stay for ever. Default: 90s.
	// +optional
	// +kubebuilder:default="90s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms])+$') && duration(self) >= duration('3s') && duration(self) <= duration('65535s')",message="holdTime must be 3s to 65535s (RFC 4271, 4.2) in whole seconds, such as 90s or 1m30s"
	HoldTime *metav1.Duration `json:"holdTime,omitempty"`

	// keepaliveTime is how long to wait between two keepalive messages. Whole
	// seconds, less than holdTime, for example 3s. Left out: a third of
	// holdTime.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms])+$') && duration(self) <= duration('65535s')",message="keepaliveTime must be whole seconds, less than holdTime, such as 3s"
	KeepaliveTime *metav1.Duration `json:"keepaliveTime,omitempty"`

	// connectTime is how long to wait before trying again to reach a router
	// that did not answer (ConnectRetryTime of RFC 4271, 8.1). Whole seconds,
	// 1s to 65535s. Default: 10s.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms])+$') && duration(self) >= duration('1s') && duration(self) <= duration('65535s')",message="connectTime must be 1s to 65535s in whole seconds, such as 10s"
	ConnectTime *metav1.Duration `json:"connectTime,omitempty"`

	// passwordSecret names the Secret with the password of the session (TCP
	// MD5, RFC 2385). Left out: no password.
	// +optional
	PasswordSecret *SecretReference `json:"passwordSecret,omitempty"`

	// ebgpMultiHop allows the router to be more than one hop away. An eBGP
	// router must otherwise be on a network of the node; iBGP routers may
	// always be far. Default: false.
	// +optional
	EBGPMultiHop bool `json:"ebgpMultiHop,omitempty"`

	// enableGracefulRestart asks the router to keep our routes while the
	// speaker restarts (RFC 4724); forwarding goes on in the kernel meanwhile,
	// so that an upgrade loses no packet. Default: true.
	// +optional
	// +kubebuilder:default=true
	EnableGracefulRestart *bool `json:"enableGracefulRestart,omitempty"`

	// nodeSelectors choose by their labels the nodes that talk to this router;
	// a node does when one of them matches. Left out: all nodes. For example
	// [{matchLabels: {rack: r1}}].
	// +optional
	NodeSelectors Selectors `json:"nodeSelectors,omitempty"`
}

// SecretReference names a Secret in the namespace that Fairlead runs in,
// commonly fairlead-system.
type SecretReference struct {
	// name of the Secret, for example router-a-password. It is in the namespace
	// that Fairlead runs in (fairlead-system), of type
	// kubernetes.io/basic-auth, and the key password holds the password.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a Secret: lower case letters, digits, dashes and dots"
	Name string `json:"name"`
}

// BGPPeerStatus is what became of the peer.
type BGPPeerStatus struct {
	// conditions tell how the peer does. Ready is True when its settings can be
	// used; otherwise its message says what is wrong, for example that its
	// Secret is missing.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BGPPeerList is a list of BGPPeers.
//
// +kubebuilder:object:root=true
type BGPPeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BGPPeer `json:"items"`
}
