package standing

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/report"
)

// Sessions keeps the BGPSessions of one node.
type Sessions struct {
	*Keeper[*v1beta1.BGPSession]
	node string
}

// NewSessions makes a keeper for a node. Nothing is written before Run, and before Tell.
func NewSessions(node string, api OwnAPI, log *slog.Logger) *Sessions {
	return &Sessions{newKeeper(sessionKind{own[*v1beta1.BGPSession]{api, "BGPSession", withSessionStatus}, node}, "BGPSession", log), node}
}

// Tell takes in the whole of what the sessions of the node are doing, and their BFD
// sessions, by BGPPeer. uid is that of the Node.
func (s *Sessions) Tell(uid types.UID, sessions map[string]report.Session, paths map[string]report.Path) {
	objects := make([]*v1beta1.BGPSession, 0, len(sessions))
	for peer, session := range sessions {
		objects = append(objects, render(s.node, uid, peer, session, paths))
	}
	s.want(objects)
}

// sessionKind are BGPSessions.
type sessionKind struct {
	own[*v1beta1.BGPSession]
	node string
}

func withSessionStatus(object, of *v1beta1.BGPSession) *v1beta1.BGPSession {
	next := object.DeepCopy()
	if next.Status = (v1beta1.BGPSessionStatus{}); of != nil {
		next.Status = of.Status
	}
	return next
}

func (k sessionKind) list(ctx context.Context) ([]*v1beta1.BGPSession, error) {
	var list v1beta1.BGPSessionList
	err := k.api.List(ctx, &list, ofNode(k.node))
	var found []*v1beta1.BGPSession
	for _, object := range list.Items {
		if object.Spec.Node == k.node {
			found = append(found, &object)
		}
	}
	return found, err
}

func (sessionKind) compare(have, want *v1beta1.BGPSession) haste {
	switch {
	case equality.Semantic.DeepEqual(have.Status, want.Status):
		return never
	case prefixes(&have.Status, &want.Status):
		return paused
	case attempts(&have.Status, &want.Status):
		return hardly
	}
	return now
}

// prefixes tells whether two statuses differ only in the prefixes and their number.
func prefixes(have, want *v1beta1.BGPSessionStatus) bool {
	same := *have
	same.AdvertisedPrefixes, same.Prefixes = want.AdvertisedPrefixes, want.Prefixes
	return equality.Semantic.DeepEqual(&same, want)
}

// attempts tells whether two statuses of a session that is down differ only in how far its
// attempts have come.
func attempts(have, want *v1beta1.BGPSessionStatus) bool {
	same := *have
	same.State = want.State
	return have.State != "" && have.State != v1beta1.SessionEstablished && want.State != v1beta1.SessionEstablished &&
		equality.Semantic.DeepEqual(&same, want)
}

// render makes the object of one session. It belongs to the Node, with which it goes.
func render(node string, uid types.UID, peer string, s report.Session, paths map[string]report.Path) *v1beta1.BGPSession {
	object := &v1beta1.BGPSession{
		ObjectMeta: metav1.ObjectMeta{
			Name:            v1beta1.SessionName(node, peer),
			Labels:          map[string]string{v1beta1.LabelNode: v1beta1.LabelValue(node), v1beta1.LabelPeer: v1beta1.LabelValue(peer)},
			OwnerReferences: owner(node, uid),
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
	for _, prefix := range s.Prefixes {
		object.Status.Prefixes = append(object.Status.Prefixes, prefix.String())
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
		if path.Detection > 0 {
			object.Status.BFD.DetectionTime = &metav1.Duration{Duration: path.Detection}
		}
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
