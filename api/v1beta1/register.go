package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all kinds of Fairlead, and the domain of its
// annotations.
const GroupName = "fairlead.dev"

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1beta1"}

// AddToScheme makes the kinds of this package known to a scheme. The error is always nil.
func AddToScheme(scheme *runtime.Scheme) error {
	add[BFDProfile](scheme, "BFDProfile")
	add[BGPAdvertisement](scheme, "BGPAdvertisement")
	add[BGPPeer](scheme, "BGPPeer")
	add[BGPSession](scheme, "BGPSession")
	add[Community](scheme, "Community")
	add[IPAddressPool](scheme, "IPAddressPool")
	add[IPReservation](scheme, "IPReservation")
	add[L2Address](scheme, "L2Address")
	add[L2Advertisement](scheme, "L2Advertisement")
	add[NodeForwarding](scheme, "NodeForwarding")
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

func add[T any, P object[T]](scheme *runtime.Scheme, kind string) {
	scheme.AddKnownTypeWithName(GroupVersion.WithKind(kind), P(new(T)))
	scheme.AddKnownTypeWithName(GroupVersion.WithKind(kind+"List"), &List[T, P]{})
}

// object is a pointer to an object of a kind of this package.
type object[T any] interface {
	*T
	runtime.Object
	DeepCopyInto(out *T)
}

type (
	// BFDProfileList is a list of BFDProfiles.
	BFDProfileList = List[BFDProfile, *BFDProfile]
	// BGPAdvertisementList is a list of BGPAdvertisements.
	BGPAdvertisementList = List[BGPAdvertisement, *BGPAdvertisement]
	// BGPPeerList is a list of BGPPeers.
	BGPPeerList = List[BGPPeer, *BGPPeer]
	// BGPSessionList is a list of BGPSessions.
	BGPSessionList = List[BGPSession, *BGPSession]
	// CommunityList is a list of Communities.
	CommunityList = List[Community, *Community]
	// IPAddressPoolList is a list of IPAddressPools.
	IPAddressPoolList = List[IPAddressPool, *IPAddressPool]
	// IPReservationList is a list of IPReservations.
	IPReservationList = List[IPReservation, *IPReservation]
	// L2AddressList is a list of L2Addresses.
	L2AddressList = List[L2Address, *L2Address]
	// L2AdvertisementList is a list of L2Advertisements.
	L2AdvertisementList = List[L2Advertisement, *L2Advertisement]
	// NodeForwardingList is a list of NodeForwardings.
	NodeForwardingList = List[NodeForwarding, *NodeForwarding]
)

// List is a list of objects of one kind.
//
// +kubebuilder:object:generate=false
type List[T any, P object[T]] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []T `json:"items"`
}

// DeepCopy returns a copy that shares nothing with the list; nil of nil.
func (l *List[T, P]) DeepCopy() *List[T, P] {
	if l == nil {
		return nil
	}
	out := &List[T, P]{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	if l.Items != nil {
		out.Items = make([]T, len(l.Items))
	}
	for i := range l.Items {
		P(&l.Items[i]).DeepCopyInto(&out.Items[i])
	}
	return out
}

// DeepCopyObject returns DeepCopy as an object.
func (l *List[T, P]) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	return l.DeepCopy()
}
