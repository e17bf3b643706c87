package v1beta1

import (
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// L2Address is who answers for one address on the local network. The speaker of the node
// that does writes it when that changes, and nobody has to: an edit moves no address. The
// next node to answer takes it over; it goes when no node answers any more, and with the
// Node that it names.
//
// The label fairlead.dev/node chooses the addresses of a node, and fairlead.dev/doubted-by those
// about which another node has doubts. That one writes its doubts, and nothing else of the object.
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

	// spec says which address it is. It never changes.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an L2Address is of one address for good: Fairlead makes another"
	Spec L2AddressSpec `json:"spec"`
	// status says who answers for it. It is written by Fairlead; do not edit it.
	// +optional
	Status L2AddressStatus `json:"status,omitzero"`
}

// L2AddressSpec says which address it is.
type L2AddressSpec struct {
	// address is an IPv4 or IPv6 address.
	// +required
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IPv4 or IPv6 address, such as 192.0.2.10 or 2001:db8::10"
	Address string `json:"address"`
}

// Condition types of L2Addresses.
const (
	// ConditionAnswering is True while the node answers for the address. The reason and
	// the message say why it is this node, or, if it is False, why it does not. It is Unknown
	// of a node that is not heard any more, until another one answers.
	ConditionAnswering = "Answering"
	// ConditionContested is True while a machine that is no node has the address, too. It
	// is left out while none is known.
	ConditionContested = "Contested"
	// ConditionDoubted is True while another node, which would take the address over, asks for
	// it and finds that nobody answers, or somebody else. It is left out while none does. That
	// node writes it.
	ConditionDoubted = "Doubted"
	// ConditionObstructed is True while something on the node that answers keeps clients from
	// the address. It is left out while nothing is known.
	ConditionObstructed = "Obstructed"
)

// Reasons why it is this node that answers for an address. That of a node which does not,
// of a contest and of a doubt is that of the Event on the Service, and that of an obstacle is that of
// the Event on the Node.
const (
	// ReasonFirst goes with ConditionAnswering of the first of all candidates.
	ReasonFirst = "First"
	// ReasonSuccessor goes with ConditionAnswering of a node before which others come that
	// are not alive, or not able.
	ReasonSuccessor = "Successor"
	// ReasonNodeSilent goes with ConditionAnswering Unknown, which another node writes of
	// one that is not heard any more.
	ReasonNodeSilent = "NodeSilent"
)

// L2AddressStatus is who answers for the address, in that node's words.
type L2AddressStatus struct {
	// node is the name of the node that answers for the address, or that would if no
	// other machine had it.
	// +optional
	Node string `json:"node,omitempty"`

	// interfaces are those of the node on which it answers.
	// +optional
	// +listType=set
	Interfaces []string `json:"interfaces,omitempty"`

	// since is when the node began to answer.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// runnerUp is the name of the node that takes the address over when this one
	// cannot answer any more; left out where there is none.
	// +optional
	RunnerUp string `json:"runnerUp,omitempty"`

	// services are those that have the address, as namespace/name.
	// +optional
	// +listType=set
	Services []string `json:"services,omitempty"`

	// conditions are Answering, which says why it is this node, and Contested, Doubted and
	// Obstructed, which are there while something is wrong.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// L2AddressList is a list of L2Addresses.
//
// +kubebuilder:object:root=true
type L2AddressList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []L2Address `json:"items"`
}

// L2AddressName is the name of the L2Address of an address: 192.0.2.10, or
// 2001-0db8-0000-0000-0000-0000-0000-0010, since a name has no colons.
func L2AddressName(address netip.Addr) string {
	return strings.ReplaceAll(address.StringExpanded(), ":", "-")
}
