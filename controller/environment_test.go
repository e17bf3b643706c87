package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/controller/leasefence"
	"fairlead.dev/fairlead/controller/passwords"
	"fairlead.dev/fairlead/internal/serve/secure"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

const (
	// runMain makes the test binary the controller itself, so that a test can
	// kill a real process.
	runMain = "FAIRLEAD_TEST_RUN_CONTROLLER"
	// patience is how long a test waits for what should take milliseconds. After a
	// leader was killed its lease has to run out first.
	patience = 2 * time.Minute
	user     = "fairlead-controller"
)

// TestMain keeps the tests by themselves: a port that was free when it was chosen must
// be free when it is bound. An API server from outside is on a network that is not theirs.
func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	flag.Parse()
	if *crashesKubeconfig != "" {
		os.Exit(m.Run())
	}
	netlab.Isolated(m.Run)
}

// cluster is an API server, and a user with the rights of the controller.
type cluster struct {
	client.WithWatch
	controller *rest.Config
	server     *apiserver.Server // if it is the test's own
	kubeconfig string            // a file of that user, if the API server is the test's own
	auditor    *auditor
}

// newCluster starts an API server of its own.
func newCluster(t *testing.T, how ...apiserver.Option) *cluster {
	t.Helper()
	server := apiserver.Start(t, how...)
	account := server.User(t, user)
	text, err := account.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, server.Config, account.Config())
	c.server = server
	c.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(c.kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: defaultNamespace}})
	c.grant(t)
	return c
}

// installed is a cluster in which the chart is installed and no controller runs: a test's
// controllers have the rights that the chart gives to its own. The file is the
// administrator's.
func installed(t *testing.T, kubeconfig string) *cluster {
	t.Helper()
	admin, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	admin.QPS = -1
	controller := rest.CopyConfig(admin)
	controller.Impersonate.UserName = "system:serviceaccount:" + defaultNamespace + ":" + user
	return connect(t, admin, controller)
}

func connect(t *testing.T, admin, controller *rest.Config) *cluster {
	t.Helper()
	kinds := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(kinds), v1beta1.AddToScheme(kinds), apiextensionsv1.AddToScheme(kinds)); err != nil {
		t.Fatal(err)
	}
	api, err := client.NewWithWatch(admin, client.Options{Scheme: kinds})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{WithWatch: api, controller: controller}
	c.auditor = audit(t, c)
	return c
}

// grant gives the user the rights that the controller needs, and no more.
func (c *cluster) grant(t *testing.T) {
	t.Helper()
	rule := func(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Verbs: verbs, Resources: resources}
	}
	read, patch, tell := []string{"list", "watch"}, []string{"patch"}, []string{"create", "patch"}
	name := metav1.ObjectMeta{Name: user}
	named := metav1.ObjectMeta{Namespace: defaultNamespace, Name: user}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	c.create(t, &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		rule("", read, "services", "nodes", "namespaces"),
		rule("", []string{"get"}, "namespaces"),
		rule(v1beta1.GroupName, []string{"get"}, "ipaddresspools", "ipreservations"),
		rule("discovery.k8s.io", read, "endpointslices"),
		rule("networking.k8s.io", read, "servicecidrs"),
		rule("", patch, "services/status"),
		rule(v1beta1.GroupName, read, "ipaddresspools", "ipreservations", "l2advertisements", "bgpadvertisements", "bgppeers", "bfdprofiles", "bgpsessions", "communities", "nodeforwardings", "l2addresses"),
		rule(v1beta1.GroupName, []string{"delete"}, "bgpsessions"),
		rule(v1beta1.GroupName, patch, "ipaddresspools/status", "ipreservations/status", "l2advertisements/status", "bgpadvertisements/status", "bgppeers/status", "bfdprofiles/status", "communities/status"),
		rule(eventsv1.GroupName, tell, "events"),
	}})
	c.create(t, &rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{
		rule("", []string{"list", "watch", "create"}, "secrets"),
		{APIGroups: []string{""}, Verbs: patch, Resources: []string{"secrets"}, ResourceNames: []string{"fairlead-hello"}},
		{APIGroups: []string{rbacv1.GroupName}, Verbs: []string{"list", "watch", "patch"}, Resources: []string{"roles"}, ResourceNames: []string{passwords.Role}},
		rule("", []string{"list", "create", "patch", "delete"}, "configmaps"),
		rule("coordination.k8s.io", []string{"get", "create", "update"}, "leases"),
		rule("", tell, "events"),
	}})
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user}
	c.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: name, Subjects: subjects, RoleRef: role})
	role.Kind = "Role"
	c.create(t, &rbacv1.RoleBinding{ObjectMeta: named, Subjects: subjects, RoleRef: role})
}

// start runs a controller in this process until stop or the end of the test.
func (c *cluster) start(t *testing.T, change ...func(*options)) (stop func()) {
	t.Helper()
	o := options{namespace: defaultNamespace, metrics: secure.Options{Address: "0"}, probeAddress: "0", lease: leasefence.Standard(), requests: fromkube.Requests{MetalLB: true}}
	for _, f := range change {
		f(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	logger := testlog.New(t)
	go func() { done <- control(ctx, c.controller, o, prometheus.NewRegistry(), logger) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controller ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (c *cluster) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

// pool makes an IPAddressPool that goes when the test ends.
func (c *cluster) pool(t *testing.T, name string, addresses ...string) *v1beta1.IPAddressPool {
	t.Helper()
	p := &v1beta1.IPAddressPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.IPAddressPoolSpec{Addresses: addresses}}
	c.temporary(t, p)
	return p
}

// service makes a LoadBalancer Service that goes when the test ends.
func (c *cluster) service(t *testing.T, name string, change ...func(*corev1.Service)) *corev1.Service {
	t.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	for _, f := range change {
		f(s)
	}
	c.temporary(t, s)
	return s
}

func (c *cluster) temporary(t *testing.T, object client.Object) {
	t.Helper()
	c.create(t, object)
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.Background(), object)); err != nil {
			t.Errorf("delete %T %s: %v", object, object.GetName(), err)
		}
	})
}

// update changes an object as a user would, again if somebody was faster.
func update[T client.Object](t *testing.T, c *cluster, object T, change func(T)) {
	t.Helper()
	before, ok := object.DeepCopyObject().(T)
	if !ok {
		t.Fatalf("a copy of %T is something else", object)
	}
	change(object)
	if err := c.Patch(t.Context(), object, client.MergeFrom(before)); err != nil {
		t.Fatalf("update %s: %v", object.GetName(), err)
	}
}

// until reads the object again and again until it is as it should be.
func until[T client.Object](t *testing.T, c *cluster, object T, what string, good func(T) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err == nil && good(object) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s is not %s: %+v", object.GetName(), what, object)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// holds waits until the Service has exactly these addresses.
func (c *cluster) holds(t *testing.T, s *corev1.Service, want ...string) {
	t.Helper()
	until(t, c, s, fmt.Sprintf("holding %v", want), func(s *corev1.Service) bool {
		condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
		return slices.Equal(ips(s), want) && condition != nil && condition.Status == metav1.ConditionTrue
	})
}

// refused waits until the Service is told why it does not have what it asks for.
func (c *cluster) refused(t *testing.T, s *corev1.Service, reason string) {
	t.Helper()
	until(t, c, s, "refused with "+reason, func(s *corev1.Service) bool {
		condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
		return condition != nil && condition.Status == metav1.ConditionFalse && condition.Reason == reason
	})
}

// told waits for an Event about the object.
func (c *cluster) told(t *testing.T, object client.Object, reason string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		var events eventsv1.EventList
		err := c.List(t.Context(), &events)
		for _, e := range events.Items {
			if e.Regarding.UID == object.GetUID() && e.Reason == reason {
				return
			}
		}
		select {
		case <-deadline:
			t.Fatalf("no Event %s about %s (%v)", reason, object.GetName(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func ips(s *corev1.Service) []string {
	var found []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeVIP {
			return []string{"ipMode is not VIP"}
		}
		found = append(found, i.IP)
	}
	return found
}

// auditor follows every change of every Service and remembers each moment at
// which two of them showed one address that they do not share.
type auditor struct {
	stop func() // ends it, which the end of the test does, too

	mu     sync.Mutex
	shown  map[client.ObjectKey]*corev1.Service
	faults []string
}

func audit(t *testing.T, c *cluster) *auditor {
	t.Helper()
	a := &auditor{shown: map[client.ObjectKey]*corev1.Service{}}
	ctx, cancel := context.WithCancel(context.Background())
	var now corev1.ServiceList
	if err := c.List(ctx, &now); err != nil {
		t.Fatalf("list Services: %v", err)
	}
	for i := range now.Items {
		a.see(watch.Event{Type: watch.Added, Object: &now.Items[i]})
	}
	w := c.follow(ctx, t, &now)
	var following sync.WaitGroup
	following.Go(func() {
		for e := range w.ResultChan() {
			a.see(e)
		}
		if ctx.Err() == nil {
			t.Error("the watch of Services ended: what they showed later, nobody saw")
		}
	})
	a.stop = sync.OnceFunc(func() {
		cancel()
		w.Stop()
		following.Wait()
		for _, f := range a.faults {
			t.Error(f)
		}
	})
	t.Cleanup(a.stop)
	return a
}

// follow watches what was listed, from that moment on. An API server may end a watch at any
// time: the next one goes on where it ended.
func (c *cluster) follow(ctx context.Context, t *testing.T, from client.ObjectList, options ...client.ListOption) watch.Interface {
	t.Helper()
	w, err := watchtools.NewRetryWatcherWithContext(ctx, from.GetResourceVersion(), followed{c, from, options})
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	return w
}

// followed is what is listed with these options.
type followed struct {
	*cluster
	from    client.ObjectList
	options []client.ListOption
}

// WatchWithContext implements cache.WatcherWithContext.
func (f followed) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return f.Watch(ctx, f.from, append(slices.Clone(f.options), &client.ListOptions{Raw: &options})...)
}

func (a *auditor) see(e watch.Event) {
	s, ok := e.Object.(*corev1.Service)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := client.ObjectKeyFromObject(s)
	if e.Type == watch.Deleted {
		delete(a.shown, key)
		return
	}
	delete(a.shown, key)
	for _, i := range s.Status.LoadBalancer.Ingress {
		for other, o := range a.shown {
			if slices.Contains(ips(o), i.IP) && !mayShare(s, o) {
				a.faults = append(a.faults, fmt.Sprintf("%s and %s both showed %s", key, other, i.IP))
			}
		}
	}
	a.shown[key] = s
}

// mayShare tells whether two Services may have one address, as they are now.
func mayShare(a, b *corev1.Service) bool {
	key := a.Annotations[v1beta1.AnnotationShareKey]
	return key != "" && key == b.Annotations[v1beta1.AnnotationShareKey] &&
		!slices.ContainsFunc(a.Spec.Ports, func(x corev1.ServicePort) bool {
			return slices.ContainsFunc(b.Spec.Ports, func(y corev1.ServicePort) bool { return x.Port == y.Port && x.Protocol == y.Protocol })
		})
}
