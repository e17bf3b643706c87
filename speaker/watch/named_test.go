package watch_test

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/watch"
)

// asked are the Secrets that were asked for, by the selectors of the requests.
type asked struct {
	mu        sync.Mutex
	selectors map[string]bool
}

// recorder notes what is asked for.
type recorder struct {
	http.RoundTripper
	*asked
}

func (r recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Path == "/api/v1/namespaces/"+namespace+"/secrets" {
		r.mu.Lock()
		r.selectors[request.URL.Query().Get("fieldSelector")] = true
		r.mu.Unlock()
	}
	return r.RoundTripper.RoundTrip(request)
}

// testSecretsAreReadByName: a node reads the key of the hellos and the passwords of its own peers, by their names, as its
// role allows no others. One that it may not read yet keeps it from no other peer.
func testSecretsAreReadByName(t *testing.T, server *apiserver.Server) {
	admin := connect(t, server)
	of := metav1.ObjectMeta{Namespace: namespace, Name: "named"}
	role := &rbacv1.Role{ObjectMeta: of, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "watch"}, ResourceNames: []string{"fairlead-hello", "mine"},
	}}}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "named"}}
	peer := func(name string, labels map[string]string) *v1beta1.BGPPeer {
		return &v1beta1.BGPPeer{ObjectMeta: meta("", name, nil), Spec: v1beta1.BGPPeerSpec{
			MyASN: 64500, PeerASN: 64512, PeerAddress: "192.0.2.1", PasswordSecret: &v1beta1.SecretReference{Name: name},
			NodeSelectors: v1beta1.Selectors{{MatchLabels: labels}},
		}}
	}
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: meta(namespace, name, nil), Data: map[string][]byte{"password": []byte("of " + name), "key": []byte("k")}}
	}
	here := map[string]string{"rack": "here"}
	for _, object := range []client.Object{
		role, &rbacv1.RoleBinding{ObjectMeta: of, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "named"}},
		&rbacv1.ClusterRole{ObjectMeta: meta("", "named", nil), Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"", "discovery.k8s.io", "networking.k8s.io"}, Verbs: []string{"list", "watch"}, Resources: []string{"services", "nodes", "pods", "endpointslices", "servicecidrs"}},
			{APIGroups: []string{v1beta1.GroupName}, Verbs: []string{"list", "watch"}, Resources: []string{"*"}},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta("", "named", nil), Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "named"}},
		&corev1.Node{ObjectMeta: meta("", "own", here)}, secret("fairlead-hello"), secret("mine"), secret("late"), secret("theirs"), secret("nobodys"),
		peer("mine", here), peer("late", here), peer("theirs", map[string]string{"rack": "there"}),
	} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	limited := *server
	limited.Config = server.User(t, "named").Config()
	names := &asked{selectors: map[string]bool{}}
	limited.Config.Wrap(func(to http.RoundTripper) http.RoundTripper { return recorder{to, names} })
	seen := observeAs(t, &limited, watch.Config{Node: "own", OwnIn: time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	c := seen.sees("its own peers, of which one has its password", func(c *view.Cluster) bool {
		return c.Configured && c.BGPPeers["late"] != nil && c.BGPPeers["mine"] != nil
	})
	if string(c.BGPPeers["mine"].Password) != "of mine" || c.BGPPeers["late"].Unusable == nil || len(c.Problems) != 1 || c.Problems[0].Object.Name != "late" {
		t.Errorf("peers %+v and %+v, problems %v", c.BGPPeers["mine"], c.BGPPeers["late"], c.Problems)
	}
	role.Rules[0].ResourceNames = append(role.Rules[0].ResourceNames, "late")
	if err := admin.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	seen.sees("the late password", func(c *view.Cluster) bool {
		return string(c.BGPPeers["late"].Password) == "of late" && len(c.Problems) == 0
	})
	mine := &v1beta1.BGPPeer{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "mine"}, mine); err != nil {
		t.Fatal(err)
	}
	mine.Spec.PasswordSecret.Name = "late"
	if err := admin.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	seen.sees("another password", func(c *view.Cluster) bool {
		return c.BGPPeers["mine"] != nil && string(c.BGPPeers["mine"].Password) == "of late"
	})
	names.mu.Lock()
	defer names.mu.Unlock()
	got := slices.Sorted(maps.Keys(names.selectors))
	if want := []string{"metadata.name=fairlead-hello", "metadata.name=late", "metadata.name=mine"}; !slices.Equal(got, want) {
		t.Errorf("asked for the Secrets %q, want %q", got, want)
	}
}
