package statuswriter

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// Sessions implements report.Objects.
func (o *Objects) Sessions(uid types.UID, sessions map[string]bgp.State, paths map[string]bfd.Status) {
	objects := make([]*v1beta1.BGPSession, 0, len(sessions))
	for peer, session := range sessions {
		objects = append(objects, render(o.node, uid, peer, session, paths))
	}
	o.sessions.want(objects)
}

type sessionKind struct {
	private[*v1beta1.BGPSession]
	node string
}

func withSessionStatus(object, of *v1beta1.BGPSession) *v1beta1.BGPSession {
	next := object.DeepCopy()
	if next.Status = (v1beta1.BGPSessionStatus{}); of != nil {
		next.Status = of.Status
	}
	return next
}

func (k sessionKind) selects() (client.ObjectList, client.MatchingLabels) {
	return &v1beta1.BGPSessionList{}, ofNode(k.node)
}

func (k sessionKind) own(object *v1beta1.BGPSession) (*v1beta1.BGPSession, bool) {
	return object, object.Spec.Node == k.node
}

func (sessionKind) compare(have, want *v1beta1.BGPSession) urgency {
	switch {
	case equality.Semantic.DeepEqual(have.Status, want.Status):
		return unchanged
	case prefixes(&have.Status, &want.Status):
		return throttled
	case attempts(&have.Status, &want.Status):
		return rare
	}
	return immediate
}

// prefixes reports whether two statuses differ only in the prefixes and their number.
func prefixes(have, want *v1beta1.BGPSessionStatus) bool {
	same := *have
	same.AdvertisedPrefixes, same.Prefixes = want.AdvertisedPrefixes, want.Prefixes
	return equality.Semantic.DeepEqual(&same, want)
}

// attempts reports whether two statuses of a session that is down differ only in how far its
// attempts have come.
func attempts(have, want *v1beta1.BGPSessionStatus) bool {
	same := *have
	same.State = want.State
	return have.State != "" && have.State != v1beta1.SessionEstablished && want.State != v1beta1.SessionEstablished &&
		equality.Semantic.DeepEqual(&same, want)
}

// render returns the object of one session. It is deleted with the Node.
func render(node string, uid types.UID, peer string, s bgp.State, paths map[string]bfd.Status) *v1beta1.BGPSession {
	object := &v1beta1.BGPSession{
		ObjectMeta: metav1.ObjectMeta{
			Name:            v1beta1.SessionName(node, peer),
			Labels:          map[string]string{v1beta1.LabelNode: v1beta1.LabelValue(node), v1beta1.LabelPeer: v1beta1.LabelValue(peer)},
			OwnerReferences: owner(node, uid),
		},
		Spec: v1beta1.BGPSessionSpec{Node: node, Peer: peer},
		Status: v1beta1.BGPSessionStatus{
			State:              v1beta1.BGPSessionState(s.Phase),
			Since:              stored(s.Since),
			LastError:          cmp.Or(s.LastError, s.Overcome),
			AdvertisedPrefixes: int32(s.Advertised),
			Prefixes:           addr.Texts(s.Prefixes),
			PeerASN:            int64(s.PeerASN),
		},
	}
	for _, u := range s.Unannounced {
		object.Status.LeftOut = append(object.Status.LeftOut, v1beta1.FamilyLeftOut{Family: u.Family.String(), Reason: u.Err.Error()})
	}
	slices.SortFunc(object.Status.LeftOut, func(a, b v1beta1.FamilyLeftOut) int { return cmp.Compare(a.Family, b.Family) })
	if s.LocalAddress.IsValid() {
		object.Status.LocalAddress = s.LocalAddress.WithZone("").String()
	}
	if s.Phase == bgp.Established {
		object.Status.Negotiated = negotiated(s.Negotiated)
	}
	if path, ok := paths[peer]; ok {
		object.Status.BFD = &v1beta1.BFDSessionStatus{State: path.State.String(), Reason: path.Reason()}
		if path.Detection > 0 {
			object.Status.BFD.DetectionTime = &metav1.Duration{Duration: path.Detection}
		}
	}
	return object
}

func negotiated(n bgp.Negotiated) *v1beta1.Negotiated {
	into := &v1beta1.Negotiated{
		GracefulRestart: n.GracefulRestart, FourOctetASN: n.FourOctetASN,
		HoldTime: metav1.Duration{Duration: n.HoldTime}, KeepaliveTime: metav1.Duration{Duration: n.KeepaliveTime},
	}
	if n.IPv4 {
		into.Families = append(into.Families, addr.IPv4.String())
	}
	if n.IPv6 {
		into.Families = append(into.Families, addr.IPv6.String())
	}
	return into
}
