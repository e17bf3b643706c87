package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BFDProfile says how soon a node and a router notice that they cannot reach
// each other, by Bidirectional Forwarding Detection (RFC 5880). BGPPeers
// name it in bfdProfile; the router needs BFD for its neighbor as well.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=bfdprofiles,scope=Cluster,shortName=flbfd,categories=fairlead
// +kubebuilder:printcolumn:name="Transmit",type=integer,JSONPath=`.spec.transmitInterval`
// +kubebuilder:printcolumn:name="Receive",type=integer,JSONPath=`.spec.receiveInterval`
// +kubebuilder:printcolumn:name="Multiplier",type=integer,JSONPath=`.spec.detectMultiplier`
// +kubebuilder:printcolumn:name="Passive",type=boolean,priority=1,JSONPath=`.spec.passiveMode`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BFDProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec has the timers of the sessions. Left out: the defaults, with which a
	// router notices a dead node after 900 ms.
	// +optional
	Spec BFDProfileSpec `json:"spec,omitzero"`
	// status says whether the profile is in use. It is written by Fairlead; do not
	// edit it.
	// +optional
	Status BFDProfileStatus `json:"status,omitzero"`
}

// BFDProfileSpec has the timers of sessions. In each direction, the slower
// of the intervals that the two sides ask for is used.
//
// +kubebuilder:object:generate=false
type BFDProfileSpec struct {
	// receiveInterval is the shortest time between two packets, in milliseconds,
	// that the node is willing to receive, 10 to 60000. Default: 300.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=60000
	ReceiveInterval int32 `json:"receiveInterval,omitempty"`

	// transmitInterval is the time between two packets, in milliseconds, at
	// which the node would like to send, 10 to 60000. Default: 300.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=60000
	TransmitInterval int32 `json:"transmitInterval,omitempty"`

	// detectMultiplier is how many packets in a row the router may miss from the
	// node before it takes the node for dead, 2 to 255. Default: 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=255
	DetectMultiplier int32 `json:"detectMultiplier,omitempty"`

	// echoMode must be false: the echo function, by which a router sends packets
	// to itself by way of the node, is not supported. Default: false.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self",message="the echo function is not supported: leave out echoMode; transmitInterval and receiveInterval may be as short as an echo interval"
	EchoMode bool `json:"echoMode,omitempty"`

	// echoInterval has no effect, since echoMode is not supported; the condition
	// Ready says so. It is accepted so that profiles which have it need not be
	// changed.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=60000
	EchoInterval int32 `json:"echoInterval,omitempty"`

	// passiveMode lets the router begin: the node sends nothing until it has
	// heard the router. Default: false.
	// +optional
	PassiveMode bool `json:"passiveMode,omitempty"`

	// minimumTtl is for routers more than one hop away: the lowest TTL or hop
	// limit with which their packets are accepted, 1 to 254. Routers commonly
	// send 255, BIRD sends 64. It has no effect where BFD is over one hop, as with
	// an iBGP router on a network of the node. Default: 254.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=254
	MinimumTTL int32 `json:"minimumTtl,omitempty"`
}

// BFDProfileStatus is the observed state of the profile.
type BFDProfileStatus struct {
	// conditions say whether the profile is in use. Ready is True when it can be
	// used.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
