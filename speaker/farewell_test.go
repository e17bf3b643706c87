package main

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
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
			reason, going := goesForGood(t.Context(), nil, config{node: "node1"}, test.cluster)
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
		labels := map[string]string{"app": name}
		set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
				Containers:   []corev1.Container{{Name: "speaker", Image: "example.com/speaker"}},
			}},
		}}
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
		"no account":              {wrong, "stays", theNode(asItWas), "permissions are gone"},
		"no API server":           {dead, "gone", theNode(asItWas), ""},
		"no DaemonSet is asked":   {server.Config, "", theNode(asItWas), ""},
		"no API server, cordoned": {dead, "stays", theNode(func(n *view.Node) { n.Cordoned = true }), "cordoned"},
	} {
		t.Run(name, func(t *testing.T) {
			c := config{node: "node1", namespace: metav1.NamespaceDefault, daemonSet: test.set}
			reason, going := goesForGood(t.Context(), clientFor(t, test.config), c, test.cluster)
			if going != (test.want != "") || !strings.Contains(reason, test.want) {
				t.Errorf("goes for good: %t, %q; want %q", going, reason, test.want)
			}
		})
	}
}

func clientFor(t *testing.T, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	api, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return api
}
