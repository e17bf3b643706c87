package v1beta1

import (
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// L2Address shows which node answers for one address on the local network.
// The speaker on that node writes it; editing it moves no address. When
// another node starts to answer, that node takes the object over. It is
// deleted when no node answers any more, and together with the Node that it
// names.
//
// Select the addresses of a node by the label fairlead.dev/node, and those
// that another node doubts by fairlead.dev/doubted-by. That node writes its
// doubts, and nothing else of the object.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=l2addresses,singular=l2address,scope=Cluster,shortName=fladdress
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Interfaces",type=string,JSONPath=`.status.interfaces`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="Runner-Up",type=string,JSONPath=`.status.runnerUp`
// +kubebuilder:printcolumn:name="Answering",type=string,JSONPath=`.status.conditions[?(@.type=="Answering")].status`
// +kubebuilder:printcolumn:name="Contested",type=string,JSONPath=`.status.conditions[?(@.type=="Contested")].status`
// +kubebuilder:printcolumn:name="Doubted",type=string,JSONPath=`.status.conditions[?(@.type=="Doubted")].reason`
// +kubebuilder:printcolumn:name="Obstructed",type=string,JSONPath=`.status.conditions[?(@.type=="Obstructed")].reason`
// +kubebuilder:printcolumn:name="Services",type=string,priority=1,JSONPath=`.status.services`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Answering")].message`
type L2Address struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which address this is about. It never changes.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an L2Address is of one address for good: Fairlead makes another"
	Spec L2AddressSpec `json:"spec"`
	// status says which node answers for it. It is written by Fairlead; do not
	// edit it.
	// +optional
	Status L2AddressStatus `json:"status,omitzero"`
}

// L2AddressSpec says which address this is about.
//
// +kubebuilder:object:generate=false
type L2AddressSpec struct {
	// address is an IPv4 or IPv6 address.
	// +required
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IPv4 or IPv6 address, such as 192.0.2.10 or 2001:db8::10"
	Address string `json:"address"`
}

// Condition types of L2Addresses.
const (
	// ConditionAnswering is True while the node answers for the address; the
	// reason and the message say why it is this node. If it is False, they say
	// why the node does not answer. It is Unknown while the node is no longer
	// heard and no other one answers yet.
	ConditionAnswering = "Answering"
	// ConditionContested is True while a machine that is not a node claims the
	// address as well, or an interface of a node has it, and absent otherwise.
	ConditionContested = "Contested"
	// ConditionDoubted is True while the node that would take the address over
	// asks for it and finds that no node answers, or another one, and absent
	// otherwise. That node writes it.
	ConditionDoubted = "Doubted"
	// ConditionObstructed is True while something on the node that answers keeps
	// clients from the address, and absent otherwise.
	ConditionObstructed = "Obstructed"
)

// Reasons of ConditionAnswering. If it is False, the reason is that of the
// Event on the Service, as it is for ConditionContested and
// ConditionDoubted. The reason of ConditionObstructed is that of the Event
// on the Node.
const (
	// ReasonFirst: the node is the first of all candidates.
	ReasonFirst = "First"
	// ReasonSuccessor: other candidates come before the node, but are not alive,
	// not able, or fell silent again and again.
	ReasonSuccessor = "Successor"
	// ReasonNotPreempted: the node keeps the address, though a candidate before
	// it could answer, since preempt of an L2Advertisement is Never.
	ReasonNotPreempted = "NotPreempted"
	// ReasonNodeSilent goes with the status Unknown, which another node writes
	// when this one is no longer heard.
	ReasonNodeSilent = "NodeSilent"
)

// L2AddressStatus says which node answers for the address, as that node
// reports it.
type L2AddressStatus struct {
	// node is the name of the node that answers for the address, or that would
	// if no other machine had the address.
	// +optional
	Node string `json:"node,omitempty"`

	// interfaces are the interfaces of the node on which it answers.
	// +optional
	// +listType=set
	Interfaces []string `json:"interfaces,omitempty"`

	// since is when the node started to answer.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// runnerUp is the name of the node that takes the address over when this one
	// can no longer answer; left out if there is none.
	// +optional
	RunnerUp string `json:"runnerUp,omitempty"`

	// services are the Services that have the address, as namespace/name.
	// +optional
	// +listType=set
	Services []string `json:"services,omitempty"`

	// conditions are Answering, which says why it is this node that answers, and
	// Contested, Doubted and Obstructed, which are present only while something
	// is wrong.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// L2AddressName is the name of the L2Address of an address: 192.0.2.10, or
// 2001-0db8-0000-0000-0000-0000-0000-0010, since a name has no colons.
func L2AddressName(address netip.Addr) string {
	return strings.ReplaceAll(address.StringExpanded(), ":", "-")
}
