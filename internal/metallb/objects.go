package metallb

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The specs of MetalLB's kinds, as far as this package reads them. What they do not
// have is found when they are read, and told.

type poolSpec struct {
	Addresses         []string          `json:"addresses"`
	AutoAssign        *bool             `json:"autoAssign"`
	AvoidBuggyIPs     bool              `json:"avoidBuggyIPs"`
	ServiceAllocation *allocationOfPool `json:"serviceAllocation"`
}

type allocationOfPool struct {
	Priority           int64                  `json:"priority"`
	Namespaces         []string               `json:"namespaces"`
	NamespaceSelectors []metav1.LabelSelector `json:"namespaceSelectors"`
	ServiceSelectors   []metav1.LabelSelector `json:"serviceSelectors"`
}

// coverage is what both advertisements have in common.
type coverage struct {
	IPAddressPools         []string               `json:"ipAddressPools"`
	IPAddressPoolSelectors []metav1.LabelSelector `json:"ipAddressPoolSelectors"`
	NodeSelectors          []metav1.LabelSelector `json:"nodeSelectors"`
	ServiceSelectors       []metav1.LabelSelector `json:"serviceSelectors"`
}

type l2Spec struct {
	coverage `json:",inline"`

	Interfaces             []string        `json:"interfaces"`
	PreferredNodeSelectors []preferredNode `json:"preferredNodeSelectors"`
}

type preferredNode struct {
	Weight     int64                `json:"weight"`
	Preference metav1.LabelSelector `json:"preference"`
}

type bgpSpec struct {
	coverage `json:",inline"`

	AggregationLength   *int64   `json:"aggregationLength"`
	AggregationLengthV6 *int64   `json:"aggregationLengthV6"`
	LocalPref           int64    `json:"localPref"`
	Communities         []string `json:"communities"`
	Peers               []string `json:"peers"`
}

// peerSpec is that of v1beta1 and of v1beta2.
type peerSpec struct {
	MyASN                  int64                  `json:"myASN"`
	PeerASN                int64                  `json:"peerASN"`
	DynamicASN             string                 `json:"dynamicASN"`
	LocalASN               int64                  `json:"localASN"`
	PeerAddress            string                 `json:"peerAddress"`
	Interface              string                 `json:"interface"`
	SourceAddress          string                 `json:"sourceAddress"`
	PeerPort               int64                  `json:"peerPort"`
	HoldTime               *metav1.Duration       `json:"holdTime"`
	KeepaliveTime          *metav1.Duration       `json:"keepaliveTime"`
	ConnectTime            *metav1.Duration       `json:"connectTime"`
	RouterID               string                 `json:"routerID"`
	NodeSelectors          []metav1.LabelSelector `json:"nodeSelectors"`
	Password               string                 `json:"password"`
	PasswordSecret         *secretReference       `json:"passwordSecret"`
	BFDProfile             string                 `json:"bfdProfile"`
	EnableGracefulRestart  *bool                  `json:"enableGracefulRestart"`
	EBGPMultiHop           bool                   `json:"ebgpMultiHop"`
	VRF                    string                 `json:"vrf"`
	DisableMP              bool                   `json:"disableMP"`
	DualStackAddressFamily *bool                  `json:"dualStackAddressFamily"`
}

type secretReference struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

type communitySpec struct {
	Communities []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"communities"`
}
