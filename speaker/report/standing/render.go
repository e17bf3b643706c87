package standing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/report"
)

// render makes the object of one session. It belongs to the Node, with which it goes.
func render(node string, uid types.UID, peer string, s report.Session, paths map[string]report.Path) v1beta1.BGPSession {
	object := v1beta1.BGPSession{
		ObjectMeta: metav1.ObjectMeta{
			Name:   v1beta1.SessionName(node, peer),
			Labels: map[string]string{v1beta1.LabelNode: v1beta1.LabelValue(node), v1beta1.LabelPeer: v1beta1.LabelValue(peer)},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node, UID: uid},
			},
		},
		Spec: v1beta1.BGPSessionSpec{Node: node, Peer: peer},
		Status: v1beta1.BGPSessionStatus{
			State: v1beta1.BGPSessionState(s.State),
			// As the API server stores it, to be compared with that.
			Since:              metav1.NewTime(s.Since.Truncate(time.Second)),
			LastError:          cmp.Or(s.LastError, s.Overcome),
			AdvertisedPrefixes: int32(s.Advertised),
			PeerASN:            int64(s.PeerASN),
		},
	}
	for _, family := range slices.Sorted(maps.Keys(s.LeftOut)) {
		object.Status.LeftOut = append(object.Status.LeftOut, v1beta1.FamilyLeftOut{Family: family.String(), Reason: s.LeftOut[family]})
	}
	if s.Local.IsValid() {
		object.Status.LocalAddress = s.Local.String()
	}
	if s.Up {
		object.Status.Negotiated = negotiated(s.Negotiated)
	}
	if path, ok := paths[peer]; ok {
		object.Status.BFD = &v1beta1.BFDSessionStatus{State: path.State, Reason: path.Reason}
	}
	return object
}

func negotiated(n report.Negotiated) *v1beta1.Negotiated {
	into := &v1beta1.Negotiated{
		GracefulRestart: n.GracefulRestart, FourOctetASN: n.FourOctetASN,
		HoldTime: metav1.Duration{Duration: n.HoldTime}, KeepaliveTime: metav1.Duration{Duration: n.KeepaliveTime},
	}
	for _, family := range n.Families {
		into.Families = append(into.Families, family.String())
	}
	return into
}

// sameOwner tells whether both objects belong to the same Node: one that was made anew has
// another UID, and what belonged to the old one is about to go.
func sameOwner(a, b *v1beta1.BGPSession) bool {
	return len(a.OwnerReferences) == 1 && len(b.OwnerReferences) == 1 && a.OwnerReferences[0].UID == b.OwnerReferences[0].UID
}
