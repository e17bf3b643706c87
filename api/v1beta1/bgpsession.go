package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BGPSession is what the BGP session of one node with one BGPPeer is doing. The
// speaker of the node writes it when that changes, and nobody has to: an edit changes
// no session. It goes with its node, and when the node has no such session any more.
//
// The labels fairlead.dev/node and fairlead.dev/peer choose the sessions of a node or
// of a peer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=bgpsessions,scope=Cluster,shortName=flsession
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name="Peer",type=string,JSONPath=`.spec.peer`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="Advertised",type=integer,JSONPath=`.status.advertisedPrefixes`
// +kubebuilder:printcolumn:name="BFD",type=string,JSONPath=`.status.bfd.state`
// +kubebuilder:printcolumn:name="Peer ASN",type=integer,priority=1,JSONPath=`.status.peerASN`
// +kubebuilder:printcolumn:name="Families",type=string,priority=1,JSONPath=`.status.negotiated.families`
// +kubebuilder:printcolumn:name="Hold Time",type=string,priority=1,JSONPath=`.status.negotiated.holdTime`
// +kubebuilder:printcolumn:name="Last Error",type=string,priority=1,JSONPath=`.status.lastError`
type BGPSession struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says whose session it is. It never changes.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a BGPSession is of one node and one peer for good: Fairlead makes another"
	Spec BGPSessionSpec `json:"spec"`
	// status says what the session is doing. It is written by Fairlead; do not
	// edit it.
	// +optional
	Status BGPSessionStatus `json:"status,omitzero"`
}

// BGPSessionSpec says whose session it is.
type BGPSessionSpec struct {
	// node is the name of the node.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a Node: lower case letters, digits, dashes and dots"
	Node string `json:"node"`

	// peer is the name of the BGPPeer.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a BGPPeer: lower case letters, digits, dashes and dots"
	Peer string `json:"peer"`
}

// BGPSessionState is a state of RFC 4271, 8.2.2.
type BGPSessionState string

// The states of a session. Connect of the RFC is told as Active: the two differ only in
// who dials, and BGPPeers say that (passive).
const (
	SessionIdle        BGPSessionState = "Idle"
	SessionActive      BGPSessionState = "Active"
	SessionOpenSent    BGPSessionState = "OpenSent"
	SessionOpenConfirm BGPSessionState = "OpenConfirm"
	SessionEstablished BGPSessionState = "Established"
	// SessionUnknown is that of a node that is not heard any more: its speaker can have had no
	// chance to say what became of the session.
	SessionUnknown BGPSessionState = "Unknown"
)

// BGPSessionStatus is what the session is doing, in the words of its node.
type BGPSessionStatus struct {
	// state is that of RFC 4271, 8.2.2: Idle, Active (which here stands for
	// Connect as well), OpenSent, OpenConfirm or Established. Of a session that
	// does not come up, it is the state in which the last error was met. Unknown is
	// written by another node, as this one is not heard any more.
	// +optional
	// +kubebuilder:validation:Enum=Idle;Active;OpenSent;OpenConfirm;Established;Unknown
	State BGPSessionState `json:"state,omitempty"`

	// since is when the session last came up, went down, or was configured.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// lastError says in words why the session is not up, or, while it is, why it
	// was not before.
	// +optional
	LastError string `json:"lastError,omitempty"`

	// advertisedPrefixes is the number of prefixes that the router has been told
	// of; 0 while the session is not up.
	// +optional
	AdvertisedPrefixes int32 `json:"advertisedPrefixes"`

	// prefixes are those that the router has been told of, sorted; left out
	// while there are more than 100. A Service is announced over the session if
	// each of its addresses is in one of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=43
	Prefixes []string `json:"prefixes,omitempty"`

	// leftOut has each address family whose prefixes are not announced although
	// the session is up.
	// +optional
	// +listType=map
	// +listMapKey=family
	LeftOut []FamilyLeftOut `json:"leftOut,omitempty"`

	// localAddress is the address of the node in the session.
	// +optional
	LocalAddress string `json:"localAddress,omitempty"`

	// peerASN is the number of the router's autonomous system, as the router
	// says.
	// +optional
	PeerASN int64 `json:"peerASN,omitempty"`

	// negotiated is what both sides agreed on; left out while the session is not
	// up.
	// +optional
	Negotiated *Negotiated `json:"negotiated,omitempty"`

	// bfd is what the BFD session beside it is doing; left out where the peer has
	// no bfdProfile, or while nothing is known of it.
	// +optional
	BFD *BFDSessionStatus `json:"bfd,omitempty"`
}

// FamilyLeftOut is an address family that a session cannot carry.
type FamilyLeftOut struct {
	// family is IPv4 or IPv6.
	// +required
	// +kubebuilder:validation:Enum=IPv4;IPv6
	Family string `json:"family"`
	// reason says why in words.
	// +required
	Reason string `json:"reason"`
}

// Negotiated is what the two sides of a session agreed on in their OPEN messages, and what
// was found of the router since.
type Negotiated struct {
	// families are those of the addresses that the session carries.
	// +optional
	// +listType=set
	Families []string `json:"families,omitempty"`
	// gracefulRestart tells that the router keeps our routes while the speaker
	// restarts (RFC 4724).
	GracefulRestart bool `json:"gracefulRestart"`
	// fourOctetASN tells that AS numbers have 32 bits in the session (RFC 6793).
	FourOctetASN bool `json:"fourOctetASN"`
	// holdTime is how long either side may be silent.
	HoldTime metav1.Duration `json:"holdTime"`
	// keepaliveTime is the time between two of our keepalive messages.
	KeepaliveTime metav1.Duration `json:"keepaliveTime"`
	// ttlSecurity tells that packets of the router are dropped if their TTL or hop limit is
	// not 255, as nobody farther away can send it (GTSM, RFC 5082): since the BGPPeer
	// asks for it, or since the router was found to send 255, some seconds after the session
	// came up.
	// +optional
	TTLSecurity bool `json:"ttlSecurity,omitempty"`
}

// BFDSessionStatus is what a BFD session is doing.
type BFDSessionStatus struct {
	// state is that of RFC 5880, 4.1: AdminDown, Down, Init or Up.
	// +required
	// +kubebuilder:validation:Enum=AdminDown;Down;Init;Up
	State string `json:"state"`
	// reason says in words why it is not up, as far as is known.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// BGPSessionList is a list of BGPSessions.
//
// +kubebuilder:object:root=true
type BGPSessionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BGPSession `json:"items"`
}
