package statuswriter_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/report/statuswriter"
)

// patience is more than what does happen takes on a busy machine.
const patience = 2 * time.Minute

// cluster is an API server, and a client with the rights that the chart gives a speaker.
type cluster struct {
	client.Client
	admin   *rest.Config
	speaker client.WithWatch
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	server := apiserver.Start(t)
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1beta1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(server.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	const user = "fairlead-speaker"
	speaker, err := client.NewWithWatch(server.User(t, user).Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	c := cluster{admin, server.Config, speaker}
	c.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"bgpsessions"}, Verbs: []string{"list", "watch", "create", "delete"}},
		{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"bgpsessions/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"l2addresses"}, Verbs: []string{"list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"l2addresses/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"nodeforwardings"}, Verbs: []string{"list", "watch", "create", "delete"}},
		{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"nodeforwardings/status"}, Verbs: []string{"patch"}},
	}})
	c.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	})
	return c
}

func (c cluster) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
	}
}

// node makes a Node and returns its UID.
func (c cluster) node(t *testing.T, name string) types.UID {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.create(t, n)
	return n.UID
}

// going runs a task until stop or the end of the test.
func going(t *testing.T, task func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = task(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// keep runs a writer until stop or the end of the test.
func (c cluster) keep(t *testing.T, node string) (k *statuswriter.Sessions, stop func()) {
	t.Helper()
	k = statuswriter.NewSessions(node, c.speaker, slog.New(slog.DiscardHandler))
	return k, going(t, k.Run)
}

// sees waits until the objects are as the test says.
func (c cluster) sees(t *testing.T, what string, ok func(map[string]v1beta1.BGPSession) bool) map[string]v1beta1.BGPSession {
	t.Helper()
	var list v1beta1.BGPSessionList
	for began := time.Now(); time.Since(began) < patience; time.Sleep(50 * time.Millisecond) {
		if err := c.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		found := map[string]v1beta1.BGPSession{}
		for _, object := range list.Items {
			found[object.Name] = object
		}
		if ok(found) {
			return found
		}
	}
	t.Fatalf("never seen: %s; there are %+v", what, list.Items)
	return nil
}

func established(since time.Time) bgp.State {
	return bgp.State{
		Phase: bgp.Established, Since: since, Overcome: "connection refused", Advertised: 3,
		Prefixes:    []netip.Prefix{netip.MustParsePrefix("192.0.2.10/32"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8::10/128")},
		Unannounced: []bgp.Unannounced{{Family: addr.IPv6, Err: errors.New("not negotiated")}}, LocalAddress: netip.MustParseAddr("192.0.2.11"),
		Negotiated: bgp.Negotiated{PeerASN: 4200000000, IPv4: true, GracefulRestart: true, FourOctetASN: true, HoldTime: 9 * time.Second, KeepaliveTime: 3 * time.Second},
	}
}

// testObjectsSayWhatSessionsDo goes through the life of the objects of one node, on a real
// API server: they come, change, survive a restart, and go.
func testObjectsSayWhatSessionsDo(t *testing.T, c cluster) {
	uid := c.node(t, "node1")
	stranger := &v1beta1.BGPSession{
		ObjectMeta: metav1.ObjectMeta{Name: "tor.node2", Labels: map[string]string{v1beta1.LabelNode: "node2"}},
		Spec:       v1beta1.BGPSessionSpec{Node: "node2", Peer: "tor"},
	}
	c.create(t, stranger)
	since := time.Now().Add(-time.Hour)
	down := bgp.State{Phase: bgp.Active, Since: since, LastError: "connection refused"}
	k, stop := c.keep(t, "node1")
	k.Set(uid, map[string]bgp.State{"tor": established(since), "edge": down}, map[string]bfd.Status{"tor": {State: bfd.Up, Detection: 900 * time.Millisecond}})
	found := c.sees(t, "both sessions", func(all map[string]v1beta1.BGPSession) bool {
		return all["tor.node1"].Status.State == v1beta1.SessionEstablished && all["edge.node1"].Status.LastError == "connection refused"
	})
	checkObject(t, found["tor.node1"], uid, since)
	if got := found["edge.node1"].Status; got.State != v1beta1.SessionActive || got.Negotiated != nil || got.BFD != nil || got.AdvertisedPrefixes != 0 || got.Prefixes != nil {
		t.Errorf("of a session that is down: %+v", got)
	}

	k.Set(uid, map[string]bgp.State{"tor": down, "edge": down}, map[string]bfd.Status{"tor": {State: bfd.Down, Diag: bfd.Expired}})
	c.sees(t, "BFD going down", func(all map[string]v1beta1.BGPSession) bool {
		s := all["tor.node1"].Status
		return s.State == v1beta1.SessionActive && s.BFD != nil && *s.BFD == v1beta1.BFDSessionStatus{State: "Down", Reason: "control detection time expired"}
	})

	k.Set(uid, map[string]bgp.State{"tor": established(since)}, nil)
	c.sees(t, "the session with a peer that is gone going", func(all map[string]v1beta1.BGPSession) bool {
		_, there := all["edge.node1"]
		return !there && all["tor.node1"].Status.BFD == nil
	})
	before := found["tor.node1"].UID

	// A restart: nothing is known, then all is as it was but for one peer.
	stop()
	k, stop = c.keep(t, "node1")
	k.Set(uid, map[string]bgp.State{"tor": down, "core": down}, nil)
	found = c.sees(t, "a new process writing on", func(all map[string]v1beta1.BGPSession) bool {
		return all["tor.node1"].Status.State == v1beta1.SessionActive && all["core.node1"].Status.State == v1beta1.SessionActive
	})
	if found["tor.node1"].UID != before {
		t.Error("a restart made an object anew")
	}

	// Somebody meddles: what is written next finds the object as it is.
	if err := c.Delete(t.Context(), new(found["core.node1"])); err != nil {
		t.Fatal(err)
	}
	k.Set(uid, map[string]bgp.State{"tor": down, "core": established(since)}, nil)
	c.sees(t, "an object that was deleted being made again", func(all map[string]v1beta1.BGPSession) bool {
		return all["core.node1"].Status.State == v1beta1.SessionEstablished
	})

	// The Node is made anew: what belongs to the old one would be collected.
	k.Set("another", map[string]bgp.State{"tor": down, "core": down}, nil)
	c.sees(t, "objects of the new Node", func(all map[string]v1beta1.BGPSession) bool {
		owned := func(s v1beta1.BGPSession) bool {
			return len(s.OwnerReferences) == 1 && s.OwnerReferences[0].UID == "another" && s.Status.State == v1beta1.SessionActive
		}
		return owned(all["tor.node1"]) && owned(all["core.node1"])
	})

	stop()
	if err := k.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.sees(t, "the objects of another node alone", func(all map[string]v1beta1.BGPSession) bool {
		_, there := all["tor.node2"]
		return there && len(all) == 1
	})
}

func checkObject(t *testing.T, got v1beta1.BGPSession, uid types.UID, since time.Time) {
	t.Helper()
	if got.Spec.Node != "node1" || got.Spec.Peer != "tor" || got.Labels[v1beta1.LabelNode] != "node1" || got.Labels[v1beta1.LabelPeer] != "tor" {
		t.Errorf("whose it is: %+v, %v", got.Spec, got.Labels)
	}
	if o := got.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].Name != "node1" || o[0].UID != uid {
		t.Errorf("it belongs to %+v", o)
	}
	s := got.Status
	if s.LastError != "connection refused" || s.AdvertisedPrefixes != 3 || s.PeerASN != 4200000000 || s.LocalAddress != "192.0.2.11" ||
		s.Since.Unix() != since.Unix() || !slices.Equal(s.LeftOut, []v1beta1.FamilyLeftOut{{Family: "IPv6", Reason: "not negotiated"}}) {
		t.Errorf("status %+v", s)
	}
	if want := []string{"192.0.2.10/32", "198.51.100.0/24", "2001:db8::10/128"}; !slices.Equal(s.Prefixes, want) {
		t.Errorf("prefixes %v, want %v", s.Prefixes, want)
	}
	if n := s.Negotiated; n == nil || !slices.Equal(n.Families, []string{"IPv4"}) || !n.GracefulRestart || !n.FourOctetASN ||
		n.HoldTime.Duration != 9*time.Second || n.KeepaliveTime.Duration != 3*time.Second {
		t.Errorf("negotiated %+v", n)
	}
	if s.BFD == nil || s.BFD.State != "Up" || s.BFD.DetectionTime == nil || s.BFD.DetectionTime.Duration != 900*time.Millisecond {
		t.Errorf("BFD %+v", s.BFD)
	}
}
