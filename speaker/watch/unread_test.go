package watch_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/watch"
)

// unread is what a watch tells of kinds that it cannot read.
type unread chan []problem.Problem

func (u unread) next(t *testing.T) []problem.Problem {
	t.Helper()
	select {
	case problems := <-u:
		return problems
	case <-time.After(patience):
		t.Fatal("nothing is told of what cannot be read")
		return nil
	}
}

// tells holds that one kind cannot be read, and what is said of it.
func (u unread) tells(t *testing.T, reason string, texts ...string) {
	t.Helper()
	problems := u.next(t)
	if len(problems) != 1 || problems[0].Object != (problem.Object{Kind: "Node", Name: "own"}) || problems[0].Reason != reason {
		t.Fatalf("told %v, want one problem of the Node for %s", problems, reason)
	}
	for _, text := range texts {
		if !strings.Contains(problems[0].Message, text) {
			t.Errorf("%q is not in %q", text, problems[0].Message)
		}
	}
}

// settles holds that the kind is read at last, and that there was nothing to tell before.
func (o observed) settles(told unread) {
	o.Helper()
	o.sees("the configuration", func(c *view.Cluster) bool { return c.Configured })
	if problems := told.next(o.T); len(problems) > 0 {
		o.Errorf("told %v again", problems)
	}
	if len(told) > 0 {
		o.Errorf("told %d times that all can be read", len(told)+1)
	}
}

// A kind that a release adds is missing where nobody has upgraded the CRDs.
func testAKindThatIsMissingIsToldOnce(t *testing.T, server *apiserver.Server) {
	told := make(unread, 100)
	var missing apiextensionsv1.CustomResourceDefinition
	o := observeAs(t, server, watch.Config{Node: "own", OwnIn: time.Millisecond, Log: slog.New(slog.DiscardHandler), Unread: func(p []problem.Problem) { told <- p }},
		func(t *testing.T, api client.Client) {
			if err := api.Get(t.Context(), client.ObjectKey{Name: "communities." + v1beta1.GroupName}, &missing); err != nil {
				t.Fatal(err)
			}
			if err := api.Delete(t.Context(), missing.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			for limit := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
				if err := api.List(t.Context(), &v1beta1.CommunityList{}); apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
					return
				}
				if time.Now().After(limit) {
					t.Fatal("the CRD does not go")
				}
			}
		})
	told.tells(t, "KindMissing", "Community", "announces no address", "crds.install", "fairlead-crds")
	past, log, toldOfPast := *server, make(testlog.Lines, 100), make(unread, 100)
	past.Config = apiserver.Aged(server.Config)
	older := observeAs(t, &past, watch.Config{Node: "own", OwnIn: time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil)), Unread: func(p []problem.Problem) { toldOfPast <- p }})
	toldOfPast.tells(t, "KindMissing", "Community", "v1.30.14", "upgrade the cluster to 1.31")
	logs(t, log, "upgrade the cluster to 1.31")
	if c := o.sees("what forwarding needs", func(*view.Cluster) bool { return true }); c.Configured {
		t.Error("the cluster lacks a kind, and the snapshot says that all were read")
	}
	missing.ObjectMeta = metav1.ObjectMeta{Name: missing.Name, Labels: missing.Labels, Annotations: missing.Annotations}
	o.create(&missing)
	o.settles(told)
	older.settles(toldOfPast)
}

// A role of another release may lack a kind. Its informer asks again and again.
func testAKindThatIsForbiddenIsToldOnce(t *testing.T, server *apiserver.Server) {
	admin, err := client.New(server.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "speaker"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "discovery.k8s.io", "networking.k8s.io"}, Verbs: []string{"list", "watch"}, Resources: []string{"*"}},
		{APIGroups: []string{v1beta1.GroupName}, Verbs: []string{"list", "watch"}, Resources: []string{
			"ipaddresspools", "ipreservations", "l2advertisements", "bgpadvertisements", "bfdprofiles", "communities",
		}},
	}}
	for _, object := range []client.Object{role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "speaker"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "speaker"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "speaker"}},
	}} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	limited := *server
	limited.Config = server.User(t, "speaker").Config()
	told := make(unread, 100)
	// The API server takes a moment to know of a new role.
	for limit := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		api, err := client.New(limited.Config, client.Options{})
		if err == nil && api.List(t.Context(), &corev1.PodList{}) == nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("the role has no effect: %v", err)
		}
	}
	o := observeAs(t, &limited, watch.Config{Node: "own", OwnIn: time.Millisecond, Log: slog.New(slog.DiscardHandler), Unread: func(p []problem.Problem) { told <- p }})
	told.tells(t, "KindForbidden", "BGPPeer", "bgppeers.fairlead.dev is forbidden", "announces no address", "roles fairlead-speaker")
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{v1beta1.GroupName}, Verbs: []string{"list", "watch"}, Resources: []string{"bgppeers"}})
	if err := admin.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	o.settles(told)
}
