package shutdown

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net"
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
		"condemned":             {theNode(func(n *view.Node) { n.Condemned = true }), "an autoscaler"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, Speaker{Node: "node1"}.decide(t.Context(), nil, test.cluster), test.want)
		})
	}
}

// TestOnOneAPIServer are the tests that share one, with the node and a DaemonSet that stays, since each takes seconds of a processor
// to start.
func TestOnOneAPIServer(t *testing.T) {
	server := apiserver.Start(t)
	admin := clientFor(t, server.Config)
	if _, err := admin.AppsV1().DaemonSets(metav1.NamespaceDefault).Create(t.Context(), newDaemonSet("stays"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	setReady := registerNode(t, admin)
	t.Run("what the DaemonSet says of going", func(t *testing.T) { testWhatTheDaemonSetSaysOfGoing(t, server, admin) })
	t.Run("the node shuts down", func(t *testing.T) { testTheNodeShutsDown(t, server, setReady) })
	t.Run("one refusal is not for good", func(t *testing.T) { testOneRefusalIsNotForGood(t, server, admin) })
}

// testWhatTheDaemonSetSaysOfGoing asks a real API server, and one that is not there.
func testWhatTheDaemonSetSaysOfGoing(t *testing.T, server *apiserver.Server, admin kubernetes.Interface) {
	sets := admin.AppsV1().DaemonSets(metav1.NamespaceDefault)
	for name, change := range map[string]func(*appsv1.DaemonSet){
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
			check(t, c.decide(ctx, clientFor(t, test.config), test.cluster), test.want)
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

// check that a speaker goes for good for a reason, alone; empty: that it is expected back.
func check(t *testing.T, got end, want string) {
	t.Helper()
	if (got.reason != "") != (want != "") || !strings.Contains(got.reason, want) || got.shutsDown {
		t.Errorf("ends as %+v; want %q", got, want)
	}
}

// registerNode creates a Node that is ready, until setReady says otherwise.
func registerNode(t *testing.T, admin kubernetes.Interface) (setReady func(corev1.ConditionStatus)) {
	t.Helper()
	node, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	setReady = func(ready corev1.ConditionStatus) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		if node, err = admin.CoreV1().Nodes().UpdateStatus(context.Background(), node, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	}
	setReady(corev1.ConditionTrue)
	return setReady
}

// testTheNodeShutsDown has kubelets that go and that stay: what starts a speaker again is a kubelet.
func testTheNodeShutsDown(t *testing.T, server *apiserver.Server, setReady func(corev1.ConditionStatus)) {
	dead := rest.CopyConfig(server.Config)
	dead.Host = "https://127.0.0.1:1"
	for name, test := range map[string]struct {
		config  *rest.Config
		network string // that the kubelet listens on; empty: it has gone before
		soon    func(kubelet net.Listener)
		want    end
	}{
		"a pod ends":                       {server.Config, "tcp", nil, end{}},
		"a pod ends, over IPv4 alone":      {server.Config, "tcp4", nil, end{}},
		"a pod ends without an API server": {dead, "tcp", nil, end{}},
		"the kubelet has gone":             {server.Config, "", nil, end{"kubelet has stopped", true}},
		"the API server, too":              {dead, "", nil, end{"kubelet has stopped", true}},
		"all are stopped at one moment":    {server.Config, "tcp", func(kubelet net.Listener) { _ = kubelet.Close() }, end{"kubelet stops", true}},
		"and the API server is gone":       {dead, "tcp", func(kubelet net.Listener) { _ = kubelet.Close() }, end{"kubelet stops", true}},
		"the kubelet shuts the node down":  {server.Config, "tcp", func(net.Listener) { setReady(corev1.ConditionFalse) }, end{"not ready", false}},
	} {
		t.Run(name, func(t *testing.T) {
			kubelet, err := net.Listen(cmp.Or(test.network, "tcp"), ":0")
			if err != nil {
				t.Fatal(err)
			}
			defer kubelet.Close()
			port := uint16(kubelet.Addr().(*net.TCPAddr).Port)
			ctx, cancel := context.WithTimeout(t.Context(), decideWithin)
			defer cancel()
			if test.network == "" {
				_ = kubelet.Close()
			}
			if test.soon != nil {
				defer setReady(corev1.ConditionTrue)
				happened := make(chan struct{})
				time.AfterFunc(decideWithin/3, func() { test.soon(kubelet); close(happened) })
				defer func() { <-happened }()
			}
			cluster := theNode(func(n *view.Node) { n.KubeletPort = port })
			got := Speaker{Node: "node1", Namespace: metav1.NamespaceDefault, DaemonSet: "stays"}.decide(ctx, clientFor(t, test.config), cluster)
			if (got.reason == "") != (test.want.reason == "") || !strings.Contains(got.reason, test.want.reason) || got.shutsDown != test.want.shutsDown {
				t.Errorf("ends as %+v, want %+v", got, test.want)
			}
		})
	}
}

// TestAListenerIsFoundInTheKernelsTable: only what listens counts, on this very port of the node.
func TestAListenerIsFoundInTheKernelsTable(t *testing.T) {
	t.Parallel()
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	for name, test := range map[string]struct {
		table string
		want  bool
	}{
		"empty":               {"", false},
		"a listener":          {head + "   0: 00000000:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 20 1\n", true},
		"over IPv6":           {head + "   1: 00000000000000000000000000000000:280A 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 20 1\n", true},
		"another port":        {head + "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 20 1\n", false},
		"what it accepted":    {head + "   0: 0100007F:280A 0100007F:A0B2 01 00000000:00000000 00:00000000 00000000     0        0 20 1\n", false},
		"to another's port":   {head + "   0: 0100007F:A0B2 0100007F:280A 0A 00000000:00000000 00:00000000 00000000     0        0 20 1\n", false},
		"nothing of the kind": {"280A\n:280A 0A\n", false},
	} {
		got, err := listenerIn(bufio.NewScanner(strings.NewReader(test.table)), 10250)
		if got != test.want || err != nil {
			t.Errorf("%s: %t (%v)", name, got, err)
		}
	}
}

// testOneRefusalIsNotForGood has an API server allow only later what the speaker asks for, as one does
// that has just started.
func testOneRefusalIsNotForGood(t *testing.T, server *apiserver.Server, admin kubernetes.Interface) {
	meta := metav1.ObjectMeta{Name: "stays", Namespace: metav1.NamespaceDefault}
	speaker := clientFor(t, server.User(t, "late").Config())
	c := Speaker{Node: "node1", Namespace: meta.Namespace, DaemonSet: meta.Name}

	ctx, cancel := context.WithTimeout(t.Context(), decideWithin)
	defer cancel()
	check(t, c.decide(ctx, speaker, theNode(asItWas)), "permissions are gone")

	ctx, cancel = context.WithTimeout(t.Context(), 15*time.Second)
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
	check(t, c.decide(ctx, speaker, theNode(asItWas)), "") // it is allowed to ask in the end
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
