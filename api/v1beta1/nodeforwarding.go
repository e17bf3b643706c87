package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeForwarding is how the forwarding of Services does on one node, by whose name it goes.
// The speaker of the node writes it when that changes, and nobody has to: an edit changes
// no rule. It goes with its Node. While no speaker runs there it says what the last one knew.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodeforwardings,scope=Cluster,shortName=flforwarding
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.status.mode`
// +kubebuilder:printcolumn:name="Tool",type=string,JSONPath=`.status.tool`
// +kubebuilder:printcolumn:name="Services",type=integer,JSONPath=`.status.services`
// +kubebuilder:printcolumn:name="Ports",type=integer,JSONPath=`.status.ports`
// +kubebuilder:printcolumn:name="Programmed",type=string,JSONPath=`.status.conditions[?(@.type=="Programmed")].status`
// +kubebuilder:printcolumn:name="Problems",type=integer,JSONPath=`.status.problems`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Undisturbed",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Undisturbed")].status`
// +kubebuilder:printcolumn:name="Sole Proxy",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="SoleProxy")].status`
// +kubebuilder:printcolumn:name="Pods Known",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="PodsKnown")].status`
// +kubebuilder:printcolumn:name="Node Known",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="NodeKnown")].status`
// +kubebuilder:printcolumn:name="Readable",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Readable")].status`
// +kubebuilder:printcolumn:name="What Is Wrong",type=string,priority=1,JSONPath=`.status.conditions[?(@.status!="True")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.node",message="a NodeForwarding has the name of its node"
type NodeForwarding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which node it is about. It never changes.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a NodeForwarding is of one node for good: Fairlead makes another"
	Spec NodeForwardingSpec `json:"spec"`
	// status says how the forwarding does. It is written by Fairlead; do not edit it.
	// +optional
	Status NodeForwardingStatus `json:"status,omitzero"`
}

// NodeForwardingSpec says which node it is about.
type NodeForwardingSpec struct {
	// node is the name of the node.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
}

// Condition types of NodeForwardings. Each is True while all is well. In the mode none,
// where another proxy forwards, there is ConditionReadable alone.
const (
	// ConditionProgrammed is True while the kernel of the node is as the Services want it.
	// False: the message has what is not as wanted, the cause and the way out; all else is
	// forwarded, and it is tried again.
	ConditionProgrammed = "Programmed"
	// ConditionUndisturbed is False while others than the speaker change its rules, and for
	// ten minutes after the last time. What they took was written again.
	ConditionUndisturbed = "Undisturbed"
	// ConditionSoleProxy is False while another service proxy has rules in the kernel of
	// the node, and Unknown where they cannot be looked for.
	ConditionSoleProxy = "SoleProxy"
	// ConditionPodsKnown is False while it is not known by which addresses to tell pods
	// from strangers.
	ConditionPodsKnown = "PodsKnown"
	// ConditionNodeKnown is False while the Node does not say at which addresses it is, so
	// that NodePorts answer nowhere on it, or where they did before.
	ConditionNodeKnown = "NodeKnown"
	// ConditionReadable is False while there are Services and EndpointSlices with values
	// that mean nothing, which are left out. The message names the first of them.
	ConditionReadable = "Readable"
)

// ReasonAsExpected goes with each condition of a NodeForwarding that is True. Of others the
// reason is that of the Event, the metric and the line in the log.
const ReasonAsExpected = "AsExpected"

// NodeForwardingStatus is how the forwarding does, in the words of its node.
type NodeForwardingStatus struct {
	// mode is the Helm value forwarding.mode: iptables, nftables, or none where another
	// proxy forwards.
	// +optional
	// +kubebuilder:validation:Enum=iptables;nftables;none
	Mode string `json:"mode,omitempty"`

	// tool is by what the kernel is told: iptables-nft or iptables-legacy, as the host uses
	// them, or nftables; left out while it is not known, and in the mode none.
	// +optional
	Tool string `json:"tool,omitempty"`

	// since is when the speaker began that forwards there now.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// services is the number of Services that the node forwards. It is written once in 30
	// seconds at most, as are all numbers here.
	// +optional
	Services int32 `json:"services"`

	// ports is the number of their ports, counted once for each address family.
	// +optional
	Ports int32 `json:"ports"`

	// programmedPorts is the number of those ports that are in the kernel as wanted.
	// +optional
	ProgrammedPorts int32 `json:"programmedPorts"`

	// problems is the number of things that are wrong, of which the conditions tell.
	// +optional
	Problems int32 `json:"problems"`

	// conditions are Programmed, Undisturbed, SoleProxy, PodsKnown, NodeKnown and Readable: each
	// is True while all is well.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeForwardingList is a list of NodeForwardings.
//
// +kubebuilder:object:root=true
type NodeForwardingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeForwarding `json:"items"`
}
