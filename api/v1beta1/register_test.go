package v1beta1_test

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.dev/fairlead/api/v1beta1"
)

// TestListsAreKnown: a client finds the kind of a list by its type, and the type by its kind.
func TestListsAreKnown(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{
		"IPAddressPoolList", "IPReservationList", "L2AdvertisementList", "BGPPeerList", "BGPAdvertisementList",
		"BFDProfileList", "BGPSessionList", "L2AddressList", "NodeForwardingList", "CommunityList",
	} {
		want := v1beta1.GroupVersion.WithKind(kind)
		list, err := scheme.New(want)
		if err != nil {
			t.Error(err)
			continue
		}
		if kinds, _, err := scheme.ObjectKinds(list); err != nil || len(kinds) != 1 || kinds[0] != want {
			t.Errorf("%T is %v (%v), want %v", list, kinds, err, want)
		}
	}
}

// TestListDeepCopy: a copy of a list says the same and shares nothing with it.
func TestListDeepCopy(t *testing.T) {
	t.Parallel()
	list := func() *v1beta1.IPAddressPoolList {
		return &v1beta1.IPAddressPoolList{
			TypeMeta: metav1.TypeMeta{Kind: "IPAddressPoolList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "7", RemainingItemCount: new(int64(3))},
			Items: []v1beta1.IPAddressPool{{
				ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}},
				Spec:       v1beta1.IPAddressPoolSpec{Addresses: v1beta1.AddressRanges{"192.0.2.0/24"}},
			}},
		}
	}
	original := list()
	copied, ok := original.DeepCopyObject().(*v1beta1.IPAddressPoolList)
	if !ok || !reflect.DeepEqual(copied, list()) {
		t.Fatalf("%+v was copied as %+v", original, copied)
	}
	*copied.RemainingItemCount = 4
	copied.Items[0].Labels["a"] = "c"
	copied.Items[0].Spec.Addresses[0] = "198.51.100.0/24"
	if !reflect.DeepEqual(original, list()) {
		t.Errorf("a change of the copy made the original %+v", original)
	}
	if none := (*v1beta1.IPAddressPoolList)(nil).DeepCopyObject(); none != nil {
		t.Errorf("nil was copied as %v", none)
	}
	if empty, ok := new(v1beta1.IPAddressPoolList).DeepCopyObject().(*v1beta1.IPAddressPoolList); !ok || empty.Items != nil {
		t.Errorf("a list without items was copied as %+v", empty)
	}
}
