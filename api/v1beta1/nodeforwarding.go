package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeForwarding shows the state of the forwarding of Services on one node,
// whose name it has. The speaker on the node writes it; editing it changes
// no rule. It is deleted together with its Node. While no speaker runs on
// the node, it has what the last speaker knew.
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

	// spec says which node this is about. It never changes.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a NodeForwarding is of one node for good: Fairlead makes another"
	Spec NodeForwardingSpec `json:"spec"`
	// status is the state of the forwarding. It is written by Fairlead; do not
	// edit it.
	// +optional
	Status NodeForwardingStatus `json:"status,omitzero"`
}

// NodeForwardingSpec says which node this is about.
//
// +kubebuilder:object:generate=false
type NodeForwardingSpec struct {
	// node is the name of the node.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
}

// Condition types of NodeForwardings. Each is True while all is well, and
// Unknown with ReasonNodeSilent once the node is not heard any more. In mode
// none, where another proxy forwards, only ConditionReadable is present.
const (
	// ConditionProgrammed is True while the kernel of the node is as the
	// Services require. If it is False, the message says what is not, the cause
	// and the way out; everything else is forwarded, and the speaker keeps
	// trying.
	ConditionProgrammed = "Programmed"
	// ConditionUndisturbed is False if a program other than the speaker changed
	// its rules in the last ten minutes. What was changed has been written
	// again.
	ConditionUndisturbed = "Undisturbed"
	// ConditionSoleProxy is False while another service proxy has rules in the
	// kernel of the node, and Unknown if the kernel cannot be searched for them.
	ConditionSoleProxy = "SoleProxy"
	// ConditionPodsKnown is False while it is not known by which addresses pods
	// can be told from strangers.
	ConditionPodsKnown = "PodsKnown"
	// ConditionNodeKnown is False while the Node has no addresses, so that
	// NodePorts answer nowhere on it, or where they did before.
	ConditionNodeKnown = "NodeKnown"
	// ConditionHandsOver is False while the connections that are open when an
	// address moves to the node may break, as where the kernel lacks NFT_DUP.
	// All else goes on.
	ConditionHandsOver = "HandsOver"
	// ConditionReadable is False while Services or EndpointSlices have values
	// that are not valid, which are left out. The message names the first of
	// them.
	ConditionReadable = "Readable"
)

// ReasonAsExpected goes with each condition of a NodeForwarding that is
// True. Others have the reason of the Event, the metric and the line in the
// log.
const ReasonAsExpected = "AsExpected"

// NodeForwardingStatus is the state of the forwarding, as its node reports it.
type NodeForwardingStatus struct {
	// mode is the Helm value forwarding.mode: iptables, nftables, or none where
	// another proxy forwards.
	// +optional
	// +kubebuilder:validation:Enum=iptables;nftables;none
	Mode string `json:"mode,omitempty"`

	// tool is what programs the kernel: iptables-nft or iptables-legacy,
	// whichever the host uses, or nftables; left out while it is not known, and
	// in mode none.
	// +optional
	Tool string `json:"tool,omitempty"`

	// since is when the speaker that forwards there now was started.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// networks are those that the interfaces of the node are on, sorted; the first
	// 64 of them. No pool gives the first and last address of an IPv4 network, nor
	// the first one of an IPv6 network.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	Networks []string `json:"networks,omitempty"`

	// services is the number of Services that the node forwards. Like all
	// numbers here, it is written at most once in 30 seconds.
	// +optional
	Services int32 `json:"services"`

	// ports is the number of their ports, counted once for each address family.
	// +optional
	Ports int32 `json:"ports"`

	// programmedPorts is the number of those ports that are in the kernel as
	// wanted.
	// +optional
	ProgrammedPorts int32 `json:"programmedPorts"`

	// problems is the number of things that are wrong; the conditions say which.
	// +optional
	Problems int32 `json:"problems"`

	// conditions are Programmed, Undisturbed, SoleProxy, PodsKnown, NodeKnown,
	// HandsOver and Readable: each is True while all is well.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
