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
	scheme.AddKnownTypes(GroupVersion,
		&IPAddressPool{}, &IPAddressPoolList{},
		&IPReservation{}, &IPReservationList{},
		&L2Advertisement{}, &L2AdvertisementList{},
		&BGPPeer{}, &BGPPeerList{},
		&BGPAdvertisement{}, &BGPAdvertisementList{},
		&BFDProfile{}, &BFDProfileList{},
		&BGPSession{}, &BGPSessionList{},
		&L2Address{}, &L2AddressList{},
		&NodeForwarding{}, &NodeForwardingList{},
		&Community{}, &CommunityList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
