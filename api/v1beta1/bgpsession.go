package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BGPSession shows the state of the BGP session of one node with one
// BGPPeer. The speaker on the node writes it; editing it changes no session.
// It is deleted together with its Node, or when the node no longer has that
// session.
//
// Select the sessions of a node or of a peer by the labels fairlead.dev/node
// and fairlead.dev/peer.
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
//
// +kubebuilder:object:generate=false
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

// The states of a session. The RFC's Connect is reported as Active: the two
// differ only in the side that dials, and BGPPeers say that (passive).
const (
	SessionIdle        BGPSessionState = "Idle"
	SessionActive      BGPSessionState = "Active"
	SessionOpenSent    BGPSessionState = "OpenSent"
	SessionOpenConfirm BGPSessionState = "OpenConfirm"
	SessionEstablished BGPSessionState = "Established"
	// SessionUnknown is for a node that is no longer heard: its speaker may have
	// had no chance to say what became of the session.
	SessionUnknown BGPSessionState = "Unknown"
)

// BGPSessionStatus is the state of the session, as its node reports it.
type BGPSessionStatus struct {
	// state is the state of the session (RFC 4271, 8.2.2): Idle, Active (which
	// here also stands for Connect), OpenSent, OpenConfirm or Established. For a
	// session that does not come up, it is the state in which the last error
	// occurred. Unknown is written by another node when this one is no longer
	// heard.
	// +optional
	// +kubebuilder:validation:Enum=Idle;Active;OpenSent;OpenConfirm;Established;Unknown
	State BGPSessionState `json:"state,omitempty"`

	// since is when the session last came up, went down, or was configured.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// lastError says why the session is not up or, while it is up, why it went
	// down before.
	// +optional
	LastError string `json:"lastError,omitempty"`

	// advertisedPrefixes is the number of prefixes that have been announced to the
	// router; 0 while the session is not up.
	// +optional
	AdvertisedPrefixes int32 `json:"advertisedPrefixes"`

	// prefixes are the prefixes that have been announced to the router, sorted;
	// left out while there are more than 100. A Service is announced over the
	// session if each of its addresses is in one of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=43
	Prefixes []string `json:"prefixes,omitempty"`

	// leftOut lists the address families whose prefixes are not announced although
	// the session is up.
	// +optional
	// +listType=map
	// +listMapKey=family
	LeftOut []FamilyLeftOut `json:"leftOut,omitempty"`

	// localAddress is the address of the node in the session, IPv4 or IPv6.
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

	// bfd is the state of the BFD session beside it; left out if the peer has no
	// bfdProfile, or while nothing is known of it.
	// +optional
	BFD *BFDSessionStatus `json:"bfd,omitempty"`
}

// FamilyLeftOut is an address family that a session cannot carry.
//
// +kubebuilder:object:generate=false
type FamilyLeftOut struct {
	// family is IPv4 or IPv6.
	// +required
	// +kubebuilder:validation:Enum=IPv4;IPv6
	Family string `json:"family"`
	// reason says why.
	// +required
	Reason string `json:"reason"`
}

// Negotiated is what the two sides of a session agreed on in their OPEN
// messages.
type Negotiated struct {
	// families are the address families that the session carries.
	// +optional
	// +listType=set
	Families []string `json:"families,omitempty"`
	// gracefulRestart says that the router keeps the node's routes while the
	// speaker restarts (RFC 4724).
	GracefulRestart bool `json:"gracefulRestart"`
	// fourOctetASN says that AS numbers have 32 bits in the session (RFC 6793).
	FourOctetASN bool `json:"fourOctetASN"`
	// holdTime is how long either side may be silent.
	HoldTime metav1.Duration `json:"holdTime"`
	// keepaliveTime is the time between two keepalive messages of the node.
	KeepaliveTime metav1.Duration `json:"keepaliveTime"`
}

// BFDSessionStatus is the state of a BFD session.
type BFDSessionStatus struct {
	// state is the state of the session (RFC 5880, 4.1): AdminDown, Down, Init
	// or Up.
	// +required
	// +kubebuilder:validation:Enum=AdminDown;Down;Init;Up
	State string `json:"state"`
	// reason says why it is not up, as far as is known.
	// +optional
	Reason string `json:"reason,omitempty"`
	// detectionTime is after how long without a packet of the router the node
	// takes it to be unreachable: the interval that both sides agreed on, so
	// often as the router's multiplier says. Left out while the session is not
	// up.
	// +optional
	DetectionTime *metav1.Duration `json:"detectionTime,omitempty"`
}
