package shutdown

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
)

// theNode is a cluster of one node.
func theNode(change func(*view.Node)) *view.Cluster {
	n := &view.Node{Name: "node1", Ready: true, Labels: map[string]string{"kubernetes.io/os": "linux"}}
	change(n)
	return &view.Cluster{Nodes: map[string]*view.Node{n.Name: n}}
}

func asItWas(*view.Node) {}

// TestWhatTheNodeSaysOfGoing is what decides without a question to the API server.
func TestWhatTheNodeSaysOfGoing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cluster *view.Cluster
		want    string // "": it will be back
	}{
		"as ever":               {theNode(asItWas), ""},
		"nothing has been read": {nil, ""},
		"removed":               {&view.Cluster{}, "is being removed"},
		"being removed":         {theNode(func(n *view.Node) { n.Deleting = true }), "is being removed"},
		"not ready":             {theNode(func(n *view.Node) { n.Ready = false }), "not ready"},
		"cordoned":              {theNode(func(n *view.Node) { n.Cordoned = true }), "cordoned"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reason, going := Speaker{Node: "node1"}.goesForGood(t.Context(), nil, test.cluster)
			if going != (test.want != "") || !strings.Contains(reason, test.want) {
				t.Errorf("goes for good: %t, %q; want %q", going, reason, test.want)
			}
		})
	}
}

// TestWhatTheDaemonSetSaysOfGoing asks a real API server, and one that is not there.
func TestWhatTheDaemonSetSaysOfGoing(t *testing.T) {
	server := apiserver.Start(t)
	admin := clientFor(t, server.Config)
	sets := admin.AppsV1().DaemonSets(metav1.NamespaceDefault)
	for name, change := range map[string]func(*appsv1.DaemonSet){
		"stays":     func(*appsv1.DaemonSet) {},
		"elsewhere": func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.NodeSelector["lb"] = "yes" },
		"leaving":   func(d *appsv1.DaemonSet) { d.Finalizers = []string{"example.com/slow"} },
	} {
		set := newDaemonSet(name)
		change(set)
		if _, err := sets.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sets.Delete(t.Context(), "leaving", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	nobody, wrong, dead := server.User(t, "nobody").Config(), rest.AnonymousClientConfig(server.Config), rest.CopyConfig(server.Config)
	wrong.BearerToken = "of somebody who is gone"
	dead.Host = "https://127.0.0.1:1"
	// The third question would come after the second that the speaker has: the client does not send it.
	slow := rest.CopyConfig(nobody)
	slow.QPS, slow.Burst = 1.5, 1
	deployed := theNode(asItWas)
	deployed.Deployed = true
	for name, test := range map[string]struct {
		config  *rest.Config
		set     string
		cluster *view.Cluster
		want    string // "": it will be back
	}{
		"an upgrade":              {server.Config, "stays", theNode(asItWas), ""},
		"before all is read":      {server.Config, "elsewhere", nil, ""},
		"other nodes are chosen":  {server.Config, "elsewhere", theNode(asItWas), "nodeSelector"},
		"this node is chosen":     {server.Config, "elsewhere", theNode(func(n *view.Node) { n.Labels["lb"] = "yes" }), ""},
		"being removed":           {server.Config, "leaving", theNode(asItWas), "being removed"},
		"removed":                 {server.Config, "gone", theNode(asItWas), "is gone"},
		"no permission":           {nobody, "stays", theNode(asItWas), "permissions are gone"},
		"no time to ask again":    {slow, "stays", theNode(asItWas), "permissions are gone"},
		"no account":              {wrong, "stays", theNode(asItWas), "permissions are gone"},
		"deleted by force":        {wrong, "stays", deployed, ""},
		"no role":                 {nobody, "stays", deployed, "permissions are gone"},
		"removed a moment ago":    {server.Config, "gone", deployed, "is gone"},
		"no API server":           {dead, "gone", theNode(asItWas), ""},
		"no DaemonSet is asked":   {server.Config, "", theNode(asItWas), ""},
		"no API server, cordoned": {dead, "stays", theNode(func(n *view.Node) { n.Cordoned = true }), "cordoned"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Speaker{Node: "node1", Namespace: metav1.NamespaceDefault, DaemonSet: test.set}
			ctx, cancel := context.WithTimeout(t.Context(), decideWithin)
			defer cancel()
			reason, going := c.goesForGood(ctx, clientFor(t, test.config), test.cluster)
			if going != (test.want != "") || !strings.Contains(reason, test.want) {
				t.Errorf("goes for good: %t, %q; want %q", going, reason, test.want)
			}
		})
	}
}

// newDaemonSet is one of speakers, for the nodes that run Linux.
func newDaemonSet(name string) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
			Containers:   []corev1.Container{{Name: "speaker", Image: "example.com/speaker"}},
		}},
	}}
}

// TestOneRefusalIsNotForGood has an API server allow only later what the speaker asks for, as one does
// that has just started.
func TestOneRefusalIsNotForGood(t *testing.T) {
	server := apiserver.Start(t)
	admin := clientFor(t, server.Config)
	meta := metav1.ObjectMeta{Name: "stays", Namespace: metav1.NamespaceDefault}
	if _, err := admin.AppsV1().DaemonSets(meta.Namespace).Create(t.Context(), newDaemonSet(meta.Name), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	speaker := clientFor(t, server.User(t, "late").Config())
	c := Speaker{Node: "node1", Namespace: meta.Namespace, DaemonSet: meta.Name}

	ctx, cancel := context.WithTimeout(t.Context(), decideWithin)
	defer cancel()
	if reason, going := c.goesForGood(ctx, speaker, theNode(asItWas)); !going || !strings.Contains(reason, "permissions are gone") {
		t.Errorf("without permission all the time: goes for good: %t, %q", going, reason)
	}

	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	granted := make(chan error, 1)
	go func() {
		for { // it has been refused at least once
			_, err := speaker.AppsV1().DaemonSets(c.Namespace).Get(ctx, c.DaemonSet, metav1.GetOptions{})
			if forbids(err) {
				break
			}
		}
		role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get"}}}}
		_, err := admin.RbacV1().Roles(meta.Namespace).Create(ctx, role, metav1.CreateOptions{})
		binding := &rbacv1.RoleBinding{
			ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "late"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		}
		_, failed := admin.RbacV1().RoleBindings(meta.Namespace).Create(ctx, binding, metav1.CreateOptions{})
		granted <- errors.Join(err, failed)
	}()
	if reason, going := c.goesForGood(ctx, speaker, theNode(asItWas)); going {
		t.Errorf("goes for good, %q, though it is allowed to ask in the end", reason)
	}
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) { netlab.Isolated(m.Run) }

func clientFor(t *testing.T, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	api, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return api
}
