package charts_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// patience is how long a test waits for what should take milliseconds.
const patience = 2 * time.Minute

// authority is an API server with what the chart installs of rights, two nodes, and a Pod of a speaker on each.
type authority struct {
	client.Client // with all rights
	t             *testing.T
	config        *rest.Config
	kube          kubernetes.Interface
}

// asAdmin has an API server and nothing installed.
func asAdmin(t *testing.T, config *rest.Config) *authority {
	t.Helper()
	a := &authority{t: t, config: config}
	a.Client = a.as(config)
	return a
}

// program runs with arguments, and returns what it printed, and its error.
type program func(args ...string) (string, error)

// admin returns the program at a path, for this cluster and its administrator.
func (a *authority) admin(path string) program {
	a.t.Helper()
	kubeconfig := filepath.Join(a.t.TempDir(), "kubeconfig")
	if err := apiserver.WriteKubeconfig(a.config, kubeconfig); err != nil {
		a.t.Fatal(err)
	}
	return func(args ...string) (string, error) {
		out, err := exec.CommandContext(a.t.Context(), path, append(args, "--kubeconfig", kubeconfig)...).CombinedOutput()
		return string(out), err
	}
}

// must fails the test if a program fails.
func (a *authority) must(run program, args ...string) {
	a.t.Helper()
	if out, err := run(args...); err != nil {
		a.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := asAdmin(t, apiserver.Start(t).Config)
	var err error
	if a.kube, err = kubernetes.NewForConfig(a.config); err != nil {
		t.Fatal(err)
	}
	a.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for _, object := range objects(t, nil) {
		switch object.(type) {
		case *corev1.ServiceAccount, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding, *rbacv1.Role, *rbacv1.RoleBinding,
			*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding:
			a.create(object.DeepCopyObject().(client.Object))
		}
	}
	for _, node := range []string{"a", "b"} {
		a.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
		a.create(a.pod(node))
	}
	a.awaitPolicies()
	return a
}

// awaitPolicies waits until the API server knows of the policies and the roles, which takes it a moment.
func (a *authority) awaitPolicies() {
	a.t.Helper()
	unbound, controller := a.as(a.token("fairlead-speaker", "")), a.as(a.token("fairlead-controller", ""))
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		speaks := unbound.Create(a.t.Context(), forwardingOf("x", "x"), client.DryRunAll)
		controls := controller.Create(a.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}, client.DryRunAll)
		if speaks != nil && controls != nil && strings.Contains(speaks.Error(), "fairlead-speaker'") && strings.Contains(controls.Error(), "fairlead-controller'") {
			return
		}
		if time.Since(began) > patience {
			a.t.Fatalf("the policies refuse nothing: %v, %v", speaks, controls)
		}
	}
}

func (*authority) pod(node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "speaker-" + node}, Spec: corev1.PodSpec{
		NodeName: node, ServiceAccountName: "fairlead-speaker", Containers: []corev1.Container{{Name: "speaker", Image: "speaker"}},
	}}
}

func (a *authority) create(object client.Object) {
	a.t.Helper()
	if err := a.Create(a.t.Context(), object); err != nil {
		a.t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

func (a *authority) as(config *rest.Config) client.Client {
	a.t.Helper()
	c, err := client.New(config, client.Options{Scheme: kinds()})
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// token returns the configuration of a client with a token of a ServiceAccount, bound to the speaker's Pod on a node as the
// kubelet asks for it, or to none.
func (a *authority) token(account, node string) *rest.Config {
	a.t.Helper()
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		pod := a.pod(node)
		if err := a.Get(a.t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			a.t.Fatal(err)
		}
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	made, err := a.kube.CoreV1().ServiceAccounts(namespace).CreateToken(a.t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(a.config)
	config.BearerToken, config.QPS = made.Status.Token, -1
	return config
}

// attempt is a request that is to be refused, and a word of the reason.
type attempt struct {
	what, because string
	do            func() error
}

// refuses holds that each request is refused, in the words of its policy or of RBAC.
func (a *authority) refuses(attempts []attempt) {
	a.t.Helper()
	for _, at := range attempts {
		err := at.do()
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), at.because) {
			a.t.Errorf("%s: %v, want a refusal that says %q", at.what, err, at.because)
		}
	}
}

func patch(text string) client.Patch {
	return client.RawPatch("application/merge-patch+json", []byte(text))
}

func forwardingOf(name, node string) *v1beta1.NodeForwarding {
	return &v1beta1.NodeForwarding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.NodeForwardingSpec{Node: node}}
}

func sessionOf(node string) *v1beta1.BGPSession {
	return &v1beta1.BGPSession{ObjectMeta: metav1.ObjectMeta{Name: "router." + node}, Spec: v1beta1.BGPSessionSpec{Node: node, Peer: "router"}}
}

func addressOf(address, node string) *v1beta1.L2Address {
	return &v1beta1.L2Address{
		ObjectMeta: metav1.ObjectMeta{Name: address, Labels: map[string]string{v1beta1.LabelNode: node}},
		Spec:       v1beta1.L2AddressSpec{Address: address},
	}
}

// eventOf is an Event about a Node.
func eventOf(node, by string) map[string]any {
	return map[string]any{
		"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": map[string]any{"namespace": "default", "generateName": "e-"},
		"eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": by, "reportingInstance": by, "type": "Normal", "reason": "R", "action": "A",
		"regarding": map[string]any{"apiVersion": "v1", "kind": "Node", "name": node},
	}
}

// testWhatASpeakerMayNot tries, with the token that the kubelet gives to a speaker, what a node that was broken into
// would: to speak for another node, and to read what is not its own.
func testWhatASpeakerMayNot(t *testing.T, a *authority) {
	ctx := t.Context()
	for _, name := range []string{"fairlead-hello", "sh.helm.release.v1.fairlead.v1", "password"} {
		a.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	a.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	a.create(forwardingOf("b", "b"))
	a.create(sessionOf("b"))
	held := addressOf("192.0.2.1", "b")
	a.create(held)
	held.Status = v1beta1.L2AddressStatus{Node: "b", Interfaces: []string{"eth0"}, Conditions: []metav1.Condition{{
		Type: "Answering", Status: "True", Reason: "First", LastTransitionTime: metav1.Now(),
	}}}
	if err := a.Status().Update(ctx, held); err != nil {
		t.Fatal(err)
	}
	speaker, unbound := a.as(a.token("fairlead-speaker", "a")), a.as(a.token("fairlead-speaker", ""))
	own := "own node, a, alone"
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}}
	secret := func(name string) client.ListOption { return client.MatchingFields{"metadata.name": name} }
	in := client.InNamespace(namespace)
	a.refuses([]attempt{
		{"a NodeForwarding of another node", own, func() error { return speaker.Create(ctx, forwardingOf("c", "c")) }},
		{"the status of a NodeForwarding of another node", own, func() error {
			return speaker.Status().Patch(ctx, forwardingOf("b", "b"), patch(`{"status":{"services":1}}`))
		}},
		{"numbers beside the mark of a dead node", own, func() error {
			return speaker.Status().Patch(ctx, forwardingOf("b", "b"), patch(`{"status":{"problems":9,"conditions":[{"type":"Programmed","status":"Unknown","reason":"NodeSilent","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`))
		}},
		{"to delete the NodeForwarding of another node", own, func() error { return speaker.Delete(ctx, forwardingOf("b", "b")) }},
		{"a BGPSession of another node", own, func() error { return speaker.Create(ctx, sessionOf("c")) }},
		{"a BGPSession by the name of another node's", own, func() error {
			taken := sessionOf("a")
			taken.Name = "other.b"
			return speaker.Create(ctx, taken)
		}},
		{"that the session of another node is up", own, func() error {
			return speaker.Status().Patch(ctx, sessionOf("b"), patch(`{"status":{"state":"Established"}}`))
		}},
		{"to delete the BGPSession of another node", own, func() error { return speaker.Delete(ctx, sessionOf("b")) }},
		{"an L2Address of another node", own, func() error { return speaker.Create(ctx, addressOf("192.0.2.2", "b")) }},
		{"an L2Address that goes with another Node", own, func() error {
			object := addressOf("192.0.2.2", "a")
			object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "b", UID: "b"}}
			return speaker.Create(ctx, object)
		}},
		{"to hand the L2Address of another node to a third", own, func() error {
			return speaker.Patch(ctx, addressOf("192.0.2.1", ""), patch(`{"metadata":{"labels":{"fairlead.dev/node":"c"}}}`))
		}},
		{"doubts in the name of another node", own, func() error {
			return speaker.Patch(ctx, addressOf("192.0.2.1", ""), patch(`{"metadata":{"labels":{"fairlead.dev/doubted-by":"c"}}}`))
		}},
		{"where another node answers", "its own node, a, answers", func() error {
			return speaker.Status().Patch(ctx, addressOf("192.0.2.1", ""), patch(`{"status":{"interfaces":["eth9"]}}`))
		}},
		{"that a third node answers", "its own node, a, answers", func() error {
			return speaker.Status().Patch(ctx, addressOf("192.0.2.1", ""), patch(`{"status":{"node":"c"}}`))
		}},
		{"that another node does not answer", "its own node, a, answers", func() error {
			return speaker.Status().Patch(ctx, addressOf("192.0.2.1", ""), patch(`{"status":{"conditions":[{"type":"Answering","status":"False","reason":"X","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`))
		}},
		{"to take a condition of another node away", "its own node, a, answers", func() error {
			return speaker.Status().Patch(ctx, addressOf("192.0.2.1", ""), patch(`{"status":{"conditions":[]}}`))
		}},
		{"to delete the L2Address of another node", own, func() error { return speaker.Delete(ctx, addressOf("192.0.2.1", "")) }},
		{"an Event about another Node", "about a alone", func() error { return speaker.Create(ctx, unstructuredOf(eventOf("b", "fairlead-speaker"))) }},
		{"an Event in the name of the kubelet", "in its own name", func() error { return speaker.Create(ctx, unstructuredOf(eventOf("a", "kubelet"))) }},
		{"anything, with a token that is bound to no Pod", "not bound to a Pod", func() error { return unbound.Create(ctx, forwardingOf("a", "a")) }},
		{"the status of a Service", "cannot patch", func() error { return speaker.Status().Patch(ctx, service, patch(`{"status":{}}`)) }},
		{"a Service", "cannot patch", func() error { return speaker.Patch(ctx, service, patch(`{"metadata":{"labels":{"x":"y"}}}`)) }},
		{"its Node", "cannot patch", func() error {
			return speaker.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, patch(`{"metadata":{"labels":{"x":"y"}}}`))
		}},
		{"all Secrets of the namespace", "cannot list", func() error { return speaker.List(ctx, &corev1.SecretList{}, in) }},
		{"the release of Helm", "cannot list", func() error {
			return speaker.List(ctx, &corev1.SecretList{}, in, secret("sh.helm.release.v1.fairlead.v1"))
		}},
		{"a password that no BGPPeer names", "cannot list", func() error { return speaker.List(ctx, &corev1.SecretList{}, in, secret("password")) }},
		{"Secrets of another namespace", "cannot list", func() error {
			return speaker.List(ctx, &corev1.SecretList{}, client.InNamespace("default"), secret("fairlead-hello"))
		}},
		{"to change the key of the hellos", "cannot patch", func() error {
			return speaker.Patch(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fairlead-hello"}}, patch(`{"data":{}}`))
		}},
		{"rights for itself", "cannot patch", func() error {
			return speaker.Patch(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fairlead-speaker-passwords"}}, patch(`{"rules":[]}`))
		}},
	})
	if err := speaker.List(ctx, &corev1.SecretList{}, in, secret("fairlead-hello")); err != nil {
		t.Errorf("the key of the hellos: %v", err)
	}
	for _, own := range []client.Object{forwardingOf("a", "a"), sessionOf("a"), addressOf("192.0.2.3", "a"), unstructuredOf(eventOf("a", "fairlead-speaker"))} {
		if err := speaker.Create(ctx, own); err != nil {
			t.Errorf("%T of its own node: %v", own, err)
		}
	}
}

// testWhatAControllerMayNot tries, with its token, what a controller that was broken into would: to get the token of
// another ServiceAccount, and to send traffic elsewhere.
func testWhatAControllerMayNot(t *testing.T, a *authority) {
	ctx := t.Context()
	controller := a.as(a.token("fairlead-controller", ""))
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	a.create(&corev1.ConfigMap{ObjectMeta: named("theirs")})
	balanced := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "balanced"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	plain := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "plain"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	a.create(balanced)
	a.create(plain)
	ingress := func(s *corev1.Service, address string) error {
		return controller.Status().Patch(ctx, s.DeepCopy(), patch(fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":%q,"ipMode":"VIP"}]}}}`, address)))
	}
	grants := func(name, rules string) func() error {
		return func() error {
			return controller.Patch(ctx, &rbacv1.Role{ObjectMeta: named(name)}, patch(`{"rules":[`+rules+`]}`))
		}
	}
	lease := func(name string) error {
		return controller.Create(ctx, unstructuredOf(map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"namespace": namespace, "name": name},
		}))
	}
	attempts := []attempt{
		{"a Secret that gets the token of a ServiceAccount", "no Secret but fairlead-hello", func() error {
			return controller.Create(ctx, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
			}})
		}},
		{"the same under the name of the key", "of type Opaque", func() error {
			return controller.Create(ctx, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "fairlead-hello", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
			}})
		}},
		{"another Secret", "no Secret but fairlead-hello", func() error { return controller.Create(ctx, &corev1.Secret{ObjectMeta: named("x")}) }},
		{"a Secret in another namespace", "cannot create", func() error {
			return controller.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fairlead-hello"}})
		}},
		{"another ConfigMap", "no ConfigMap but its ledger", func() error { return controller.Create(ctx, &corev1.ConfigMap{ObjectMeta: named("x")}) }},
		{"to change a ConfigMap", "no ConfigMap but its ledger", func() error {
			return controller.Patch(ctx, &corev1.ConfigMap{ObjectMeta: named("theirs")}, patch(`{"data":{"x":"y"}}`))
		}},
		{"to delete a ConfigMap", "no ConfigMap but its ledger", func() error { return controller.Delete(ctx, &corev1.ConfigMap{ObjectMeta: named("theirs")}) }},
		{"another Lease", "no Lease but fairlead-controller", func() error { return lease("x") }},
		{"the spec of a Service", "cannot patch", func() error {
			return controller.Patch(ctx, balanced.DeepCopy(), patch(`{"spec":{"externalIPs":["192.0.2.1"]}}`))
		}},
		{"all Secrets for the speakers", "by their names", grants("fairlead-speaker-passwords", `{"apiGroups":[""],"resources":["secrets"],"verbs":["list","watch"]}`)},
		{"to let the speakers write Secrets", "attempting to grant", grants("fairlead-speaker-passwords", `{"apiGroups":[""],"resources":["secrets"],"resourceNames":["x"],"verbs":["patch"]}`)},
		{"to let the speakers write ConfigMaps", "by their names", grants("fairlead-speaker-passwords", `{"apiGroups":[""],"resources":["configmaps"],"resourceNames":["x"],"verbs":["list"]}`)},
		{"rights for itself", "cannot patch", grants("fairlead-controller", ``)},
	}
	for _, address := range []string{"127.0.0.1", "::1", "169.254.169.254", "fe80::1", "224.0.0.1", "0.0.0.0"} {
		attempts = append(attempts, attempt{"the address " + address, "neither loopback", func() error { return ingress(balanced, address) }})
	}
	a.refuses(attempts)
	for what, do := range map[string]func() error{
		"the key of the hellos": func() error {
			return controller.Create(ctx, &corev1.Secret{ObjectMeta: named("fairlead-hello"), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"key": []byte("k")}})
		},
		"its ledger": func() error {
			return controller.Create(ctx, &corev1.ConfigMap{ObjectMeta: named("fairlead-ledger-192.0.2.0-24")})
		},
		"its Lease":  func() error { return lease("fairlead-controller") },
		"an address": func() error { return ingress(balanced, "192.0.2.1") },
		"a link-local address of IPv4, which a pool may have": func() error { return ingress(balanced, "169.254.7.1") },
		"an address of IPv6": func() error { return ingress(balanced, "2001:db8::1") },
		"no address": func() error {
			return controller.Status().Patch(ctx, balanced.DeepCopy(), patch(`{"status":{"loadBalancer":null}}`))
		},
		"conditions of any one": func() error {
			return controller.Status().Patch(ctx, plain.DeepCopy(), patch(`{"status":{"conditions":[]}}`))
		},
		"a password for speakers": grants("fairlead-speaker-passwords",
			`{"apiGroups":[""],"resources":["secrets"],"resourceNames":["password"],"verbs":["list","watch"]}`),
		"no password for speakers": func() error {
			return controller.Patch(ctx, &rbacv1.Role{ObjectMeta: named("fairlead-speaker-passwords")}, patch(`{"rules":null}`))
		},
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := grants("fairlead-speaker-passwords", `{"apiGroups":[""],"resources":["secrets"],"resourceNames":["password"],"verbs":["list","watch"]}`)(); err != nil {
		t.Fatal(err)
	}
	a.create(&corev1.Secret{ObjectMeta: named("password")})
	speaker, err := a.as(a.token("fairlead-speaker", "a")), error(nil)
	for began := time.Now(); time.Since(began) < patience; time.Sleep(50 * time.Millisecond) {
		if err = speaker.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": "password"}); err == nil {
			return
		}
	}
	t.Errorf("a speaker does not read the password that a BGPPeer names: %v", err)
}

// In kube-system the rights of the controller would be rights over what keeps a cluster.
func TestKubeSystemIsRefused(t *testing.T) {
	t.Parallel()
	for version, program := range helms(t) {
		_, err := helm(t, program, nil, "template", "fairlead", chart, "--namespace", "kube-system")
		if err == nil || !strings.Contains(err.Error(), "Fairlead is not installed in kube-system") {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// The controller is not on the network of a node, and the speakers ask further API servers after a first one.
func TestAPIServersThatCannotBeReachedAreRefused(t *testing.T) {
	t.Parallel()
	for set, says := range map[string]string{
		"controller.apiServer.host=localhost":                    "controller.apiServer.host is localhost, which is the controller's own pod",
		"controller.apiServer.host=::1":                          "controller.apiServer.host is ::1",
		"controller.apiServer.host=0:0:0:0:0:0:0:1":              "which is the controller's own pod",
		"controller.apiServer.host=LocalHost":                    "which is the controller's own pod",
		"controller.apiServer.host=127.0.0.1":                    "leave it empty, so that the controller uses the ClusterIP",
		"apiServer.servers={192.0.2.6:6443}":                     "set apiServer.host and apiServer.port to the first",
		"apiServer.servers={192.0.2.6},apiServer.host=192.0.2.5": "servers",
	} {
		for version, program := range helms(t) {
			_, err := helm(t, program, nil, "template", "fairlead", chart, "--namespace", "fairlead-system", "--set", set)
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %s: %v", version, set, err)
			}
		}
	}
	// On the loopback of each node, as with Talos, k3s and RKE2: for the speakers alone.
	all := objects(t, values{"apiServer": values{"host": "127.0.0.1", "port": 7445}})
	for _, v := range one[*appsv1.Deployment](t, all, "fairlead-controller").Spec.Template.Spec.Containers[0].Env {
		if v.Name == "KUBERNETES_SERVICE_HOST" {
			t.Errorf("the controller is told to ask %s", v.Value)
		}
	}
}
