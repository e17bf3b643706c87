package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BGPPeer is a router with which nodes hold a BGP session. BGPAdvertisements
// say which addresses are announced to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=bgppeers,scope=Cluster,shortName=flpeer,categories=fairlead
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.peerAddress`
// +kubebuilder:printcolumn:name="Interface",type=string,priority=1,JSONPath=`.spec.interface`
// +kubebuilder:printcolumn:name="Port",type=integer,priority=1,JSONPath=`.spec.peerPort`
// +kubebuilder:printcolumn:name="Peer ASN",type=integer,JSONPath=`.spec.peerASN`
// +kubebuilder:printcolumn:name="Dynamic ASN",type=string,priority=1,JSONPath=`.spec.dynamicASN`
// +kubebuilder:printcolumn:name="My ASN",type=integer,JSONPath=`.spec.myASN`
// +kubebuilder:printcolumn:name="Hold Time",type=string,priority=1,JSONPath=`.spec.holdTime`
// +kubebuilder:printcolumn:name="Established",type=string,JSONPath=`.status.sessions`
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
// +kubebuilder:validation:XValidation:rule="has(self.peerAddress) != has(self.interface)",message="give one of peerAddress and interface: the address of the router, or the interface of the node whose cable leads to it",fieldPath=".peerAddress"
// +kubebuilder:validation:XValidation:rule="!has(self.interface) || !has(self.sourceAddress)",message="an unnumbered session comes from the link-local address of the interface: leave sourceAddress out",fieldPath=".sourceAddress"
// +kubebuilder:validation:XValidation:rule="!has(self.interface) || !has(self.passive) || !self.passive",message="an unnumbered session is begun by the node: leave passive out",fieldPath=".passive"
// +kubebuilder:validation:XValidation:rule="!has(self.passive) || !self.passive || !has(self.peerPort) || self.peerPort == 179",message="has no effect with passive, where the router connects to a port of the node (the chart's value speaker.bgpListenPort): leave one of them out",fieldPath=".peerPort"
// +kubebuilder:validation:XValidation:rule="!has(self.passive) || !self.passive || !has(self.connectTime) || self.connectTime == '10s'",message="has no effect with passive, where the router connects: leave one of them out",fieldPath=".connectTime"
// +kubebuilder:validation:XValidation:rule="!has(self.interface) || !has(self.ebgpMultiHop) || !self.ebgpMultiHop",message="the router at the other end of an interface is one hop away: leave ebgpMultiHop out",fieldPath=".ebgpMultiHop"
// +kubebuilder:validation:XValidation:rule="has(self.peerASN) != has(self.dynamicASN)",message="give one of peerASN and dynamicASN: the number of the router's autonomous system, or whether it is ours",fieldPath=".peerASN"
// +kubebuilder:validation:XValidation:rule="!has(self.ebgpMultiHop) || !self.ebgpMultiHop || (has(self.dynamicASN) ? self.dynamicASN != 'internal' : !has(self.peerASN) || (has(self.localASN) ? self.localASN : self.myASN) != self.peerASN)",message="ebgpMultiHop is for eBGP only: leave it out, or give different numbers in myASN and peerASN",fieldPath=".ebgpMultiHop"
// +kubebuilder:validation:XValidation:rule="!has(self.ttlSecurity) || !self.ttlSecurity || !has(self.ebgpMultiHop) || !self.ebgpMultiHop",message="ttlSecurity is for routers on a network of the node, and ebgpMultiHop for those that are not: leave one of them out",fieldPath=".ttlSecurity"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceAddress) || !has(self.peerAddress) || !isIP(self.sourceAddress) || !isIP(self.peerAddress) || ip(self.sourceAddress).family() == ip(self.peerAddress).family()",message="sourceAddress must be of the same family as peerAddress: both IPv4 or both IPv6",fieldPath=".sourceAddress"
// +kubebuilder:validation:XValidation:rule="!has(self.keepaliveTime) || !has(self.holdTime) || !self.keepaliveTime.matches('^([0-9]{1,5}[hms])+$') || !self.holdTime.matches('^([0-9]{1,5}[hms])+$') || duration(self.keepaliveTime) >= duration('1s') && duration(self.keepaliveTime) < duration(self.holdTime)",message="keepaliveTime must be at least 1s and less than holdTime (90s when left out)",fieldPath=".keepaliveTime"
// +kubebuilder:validation:XValidation:rule="!has(self.password) || size(self.password) == 0 || !has(self.passwordSecret)",message="give one of password and passwordSecret; passwordSecret is the safer one",fieldPath=".password"
type BGPPeerSpec struct {
	// myASN is the autonomous system number of the nodes, 1 to 4294967294, for
	// example 64500. 64512 to 65534 and 4200000000 to 4294967294 are for
	// private use (RFC 6996).
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	// +kubebuilder:validation:XValidation:rule="!(self in [23456, 65535])",message="myASN must be the number of a real autonomous system: not 23456 (AS_TRANS, RFC 6793) and not 65535 (reserved, RFC 7300)"
	MyASN int64 `json:"myASN"`

	// localASN is the autonomous system number that this router sees in place of
	// myASN, for example 64501; the router never sees myASN then. 1 to 4294967294.
	// Left out: myASN.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	// +kubebuilder:validation:XValidation:rule="!(self in [23456, 65535])",message="localASN must be the number of a real autonomous system: not 23456 (AS_TRANS, RFC 6793) and not 65535 (reserved, RFC 7300)"
	LocalASN int64 `json:"localASN,omitempty"`

	// peerASN is the autonomous system number of the router, 1 to 4294967294,
	// for example 64512. If it equals myASN, the session is iBGP, otherwise eBGP.
	// Left out: dynamicASN says which of the two it is.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	// +kubebuilder:validation:XValidation:rule="!(self in [23456, 65535])",message="peerASN must be the number of a real autonomous system: not 23456 (AS_TRANS, RFC 6793) and not 65535 (reserved, RFC 7300)"
	PeerASN int64 `json:"peerASN,omitempty"`

	// dynamicASN accepts the number that the router sends, in place of peerASN:
	// internal if it must be the nodes' own (iBGP), external if it must be another
	// one (eBGP).
	// +optional
	// +kubebuilder:validation:Enum=internal;external
	DynamicASN DynamicASN `json:"dynamicASN,omitempty"`

	// peerAddress is the IPv4 or IPv6 address of the router, for example
	// 192.0.2.1 or 2001:db8::1. Left out: interface says where the router is.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && (ip(self).isGlobalUnicast() || ip(self).isLoopback() || ip(self).family() == 4 && ip(self).isLinkLocalUnicast())",message="peerAddress must be the unicast address of a router, such as 192.0.2.1 or 2001:db8::1: no mask, port or zone, not as ::ffff:192.0.2.1, and no IPv6 link-local address"
	PeerAddress string `json:"peerAddress,omitempty"`

	// interface is the network interface of the node, for example eth1, for a
	// session without configured addresses (unnumbered), in place of
	// peerAddress. The session is with the IPv6 link-local address of the router
	// at the other end of the cable, which is learnt from router advertisements
	// (RFC 4861). Routes of both families have the link-local address of the
	// node as next hop, for IPv4 by RFC 8950.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^/:[:space:]]+$') && !(self in ['.', '..'])",message="must be the name of a network interface, without white space, slash and colon"
	Interface string `json:"interface,omitempty"`

	// peerPort is the TCP port on which the router listens. Default: 179.
	// +optional
	// +kubebuilder:default=179
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	PeerPort int32 `json:"peerPort,omitempty"`

	// passive makes the node wait for the router to open the connection, from
	// peerAddress, to a port of the node that the chart sets
	// (speaker.bgpListenPort, default 179). The node listens there only while it
	// has a passive BGPPeer, and closes connections from other addresses.
	// peerPort and connectTime would have no effect, and are refused. Default:
	// false.
	// +optional
	Passive bool `json:"passive,omitempty"`

	// sourceAddress is the node's address in the session, of the same family as
	// peerAddress, for example 192.0.2.11. A node that does not have this address
	// cannot hold the session, so use it with nodeSelectors that select a single
	// node. Left out: the kernel chooses by its routes.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && (ip(self).isGlobalUnicast() || ip(self).isLoopback() || ip(self).family() == 4 && ip(self).isLinkLocalUnicast())",message="sourceAddress must be a unicast address of the node, such as 192.0.2.11 or 2001:db8::11: no mask, port or zone, not as ::ffff:192.0.2.11, and no IPv6 link-local address"
	SourceAddress string `json:"sourceAddress,omitempty"`

	// routerID is the BGP identifier of the nodes in sessions with this router,
	// written as an IPv4 address other than 0.0.0.0, for example 192.0.2.11.
	// Two nodes must not use the same one towards one router (RFC 6286), so use it
	// with nodeSelectors that select a single node. Left out: derived from each
	// node.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4 && !ip(self).isUnspecified()",message="routerID must be written as an IPv4 address other than 0.0.0.0, such as 192.0.2.11"
	RouterID string `json:"routerID,omitempty"`

	// holdTime is how long either side may be silent before the other takes the
	// session for dead; the two sides use the smaller of their values. Whole
	// seconds, 3s to 65535s, for example 9s. 0s, which means never (RFC 4271,
	// 4.2), is refused, since a route to a dead node would stay for ever.
	// Default: 90s.
	// +optional
	// +kubebuilder:default="90s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms])+$') && duration(self) >= duration('3s') && duration(self) <= duration('65535s')",message="holdTime must be 3s to 65535s (RFC 4271, 4.2) in whole seconds, such as 90s or 1m30s"
	HoldTime *metav1.Duration `json:"holdTime,omitempty"`

	// keepaliveTime is the time between two keepalive messages. Whole seconds,
	// less than holdTime, for example 3s. If it is left out, or if the router's
	// hold time is shorter than holdTime: a third of the shorter hold time.
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

	// passwordSecret names the Secret with the password of the session (TCP MD5,
	// RFC 2385). While the Secret is missing or has no password, no session is
	// opened. Left out: the password in the field password, or none.
	// +optional
	PasswordSecret *SecretReference `json:"passwordSecret,omitempty"`

	// ebgpMultiHop says that an eBGP router is more than one hop away: BFD with
	// it is then multihop (RFC 5883), and ttlSecurity cannot be used. It does
	// not change the node's packets, which always leave with a TTL or hop limit
	// of 255; whether the router accepts them depends on its own such setting.
	// iBGP routers may always be more than one hop away. Default: false.
	// +optional
	EBGPMultiHop bool `json:"ebgpMultiHop,omitempty"`

	// ttlSecurity drops packets of the session that do not come from a network
	// of the node: those with a TTL or hop limit other than 255, which no host
	// farther away can send (GTSM, RFC 5082). The router must be configured to
	// send 255 (FRR: ttl-security hops 1; BIRD: ttl security on); by default
	// eBGP routers commonly send 1, and the session would never come up. The
	// node's own packets always have 255. Default: false, which drops nothing.
	// +optional
	TTLSecurity bool `json:"ttlSecurity,omitempty"`

	// dualStackAddressFamily offers both IPv4 and IPv6 on the session; the
	// router decides which of them it activates. False: only the family of
	// peerAddress, or IPv6 with interface; use that where a second BGPPeer
	// carries the other family. Default: true.
	// +optional
	// +kubebuilder:default=true
	DualStackAddressFamily *bool `json:"dualStackAddressFamily,omitempty"`

	// enableGracefulRestart asks the router to keep the node's routes while the
	// speaker restarts (RFC 4724); forwarding goes on in the kernel meanwhile,
	// so that an upgrade loses no packet. Default: true.
	// +optional
	// +kubebuilder:default=true
	EnableGracefulRestart *bool `json:"enableGracefulRestart,omitempty"`

	// bfdProfile names a BFDProfile, with whose timers a BFD session runs beside
	// the BGP session, so that both sides notice sooner than by the holdTime
	// that they cannot reach each other. Left out: no BFD.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a BFDProfile: lower case letters, digits, dashes and dots"
	BFDProfile string `json:"bfdProfile,omitempty"`

	// nodeSelectors select the nodes that talk to this router by their labels; a
	// node does if at least one of them matches. Left out: all nodes. For
	// example [{matchLabels: {rack: r1}}].
	// +optional
	NodeSelectors Selectors `json:"nodeSelectors,omitempty"`

	// password is the password of the session (TCP MD5, RFC 2385), of at most 80
	// bytes, in place of passwordSecret. Every user that may read BGPPeers can
	// read it, and it is in every copy of the object, so a Secret is the better
	// place. Left out: the password in passwordSecret, or none.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	Password string `json:"password,omitempty"`

	// disableMP must be false: write dualStackAddressFamily: false, which means
	// the same. The field exists only to be refused: a client that drops unknown
	// fields would otherwise make a session that offers both families.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self",message="write dualStackAddressFamily: false, which is the same"
	DisableMP bool `json:"disableMP,omitempty"`

	// vrf must be empty: there are no sessions in VRFs. The main routing table
	// must reach the router.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self == ''",message="there are no sessions in VRFs: have the main routing table reach the router, and leave vrf out"
	VRF string `json:"vrf,omitempty"`
}

// DynamicASN says whether the router's autonomous system is ours.
type DynamicASN string

// The values of dynamicASN.
const (
	DynamicInternal DynamicASN = "internal"
	DynamicExternal DynamicASN = "external"
)

// SecretReference names a Secret in the namespace in which Fairlead runs,
// usually fairlead-system.
//
// +kubebuilder:object:generate=false
type SecretReference struct {
	// name is the name of the Secret, for example router-a-password. The Secret
	// is in the namespace in which Fairlead runs (usually fairlead-system),
	// commonly has the type kubernetes.io/basic-auth, and has the password under
	// the key password.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a Secret: lower case letters, digits, dashes and dots"
	Name string `json:"name"`
}

// BGPPeerStatus is the observed state of the peer.
type BGPPeerStatus struct {
	// sessions is how many nodes have an established session with the router, of
	// how many that talk to it: 2/3. The BGPSessions have the details of each.
	// +optional
	Sessions string `json:"sessions,omitempty"`

	// conditions say whether the peer is in use. Ready is True when its settings
	// can be used; otherwise its message says what is wrong, for example that
	// its Secret is missing. Established is True when all nodes that talk to the
	// router have an established session; otherwise its message says for each of
	// the others why it has none.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
