package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/view"
)

// TestController runs the controller, with the rights it has in production,
// against a real API server, and sees to it that at no moment two Services show
// one address. The tests share the server and come one after the other.
func TestController(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"allocates both families and tells", testAllocates},
		{"keeps addresses over a restart, and writes nothing then", testRestart},
		{"frees the address of a deleted Service", testDeletion},
		{"frees the address on a change of type", testTypeChange},
		{"says that a pool is full, and heals when it grows", testExhausted},
		{"keeps addresses of a pool that is deleted, until another is asked for", testDeletedPool},
		{"gives nothing of what was replaced and its watch does not know yet", testOutdated},
		{"says that no advertisement covers a pool", testAdvertised},
		{"says that nobody announces a Service", testAnnouncedByNobody},
		{"does not fight over a status", testContested},
		{"keeps the address over changes of families", testFamilies},
		{"lets pools choose, and keeps freed addresses back", testPoolRules},
		{"keeps back what was freed while no controller ran", testLedger},
		{"goes on without a ledger, and says so", testLedgerForbidden},
		{"repairs its ledger", testLedgerRepair},
		{"gives nothing of the range of ClusterIPs", testServiceRange},
		{"gives nothing that the cluster itself has", testOccupied},
		{"replaces addresses of nodes in a status", testNodesInAStatus},
		{"knows ClusterIPs where no ServiceCIDR tells their range", testOlderServer},
		{"says what is wrong with a request", testRequests},
		{"refuses or tells what is malformed", testMalformed},
		{"names keys that mean nothing", testStray},
		{"names MetalLB's keys where they are not read", testUnreadMetalLB},
		{"lets Services share an address, and says where no node serves all", testSharing},
		{"lets no tenant share another one's address unasked, and tells it no key", testTenants},
		{"tells in short of what is long", testLongTexts},
		{"keeps reserved addresses over their Services", testReservations},
		{"takes overlapping pools apart", testOverlap},
		{"leaves other classes alone", testClass},
		{"says what is wrong with advertisements and peers", testReferences},
		{"counts the sessions of peers", testSessions},
		{"says that another machine has an address", testTaken},
		{"lets speakers read the passwords of peers, and nothing else", testPasswords},
		{"keeps the key of the hellos", testHelloKey},
		{"makes a key where the Secret has none", testHelloKeyLost},
		{"says that it cannot make a key where the Secret is immutable", testHelloKeyImmutable},
		{"is ready while it stands by, and hands over when it stops", testHandover},
		{"serves a burst", testBurst},
		{"has the readers of its metrics reviewed", testSecureMetrics},
		{"takes over when the leader is killed", testFailover},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

func dualStack(s *corev1.Service) {
	policy := corev1.IPFamilyPolicyRequireDualStack
	s.Spec.IPFamilyPolicy = &policy
}

func asking(annotation, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations = map[string]string{annotation: value} }
}

func testAllocates(t *testing.T, c *cluster) {
	c.start(t)
	pool := c.pool(t, "p", "192.0.2.0/24", "2001:db8::/64")
	one := c.service(t, "one")
	c.holds(t, one, "192.0.2.0")
	c.told(t, one, v1beta1.ReasonAllocated)
	two := c.service(t, "two", dualStack)
	c.holds(t, two, "192.0.2.1", "2001:db8::")
	until(t, c, pool, "counted", func(p *v1beta1.IPAddressPool) bool {
		want := v1beta1.IPAddressPoolStatus{
			Conditions: p.Status.Conditions, Addresses: []string{"192.0.2.0/24", "2001:db8::/64"},
			AssignedIPv4: 2, AvailableIPv4: 254, TotalIPv4: 256, AssignedIPv6: 1, AvailableIPv6: 1<<63 - 1, TotalIPv6: 1<<63 - 1,
		}
		return meta.IsStatusConditionTrue(p.Status.Conditions, v1beta1.ConditionReady) && fmt.Sprint(p.Status) == fmt.Sprint(want)
	})
}

func testRestart(t *testing.T, c *cluster) {
	stop := c.start(t)
	c.pool(t, "p", "192.0.2.0/24")
	first := c.service(t, "first")
	c.holds(t, first, "192.0.2.0")
	second := c.service(t, "second")
	c.holds(t, second, "192.0.2.1")
	if err := c.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	stop()
	version := second.ResourceVersion

	c.start(t)
	third := c.service(t, "third") // its pass has looked at second, too
	c.holds(t, third, "192.0.2.0")
	c.holds(t, second, "192.0.2.1")
	if second.ResourceVersion != version {
		t.Errorf("a restart wrote to a Service that was as it should be")
	}
}

func testDeletion(t *testing.T, c *cluster) {
	c.start(t)
	c.pool(t, "p", "192.0.2.1/32")
	first := c.service(t, "first")
	c.holds(t, first, "192.0.2.1")
	second := c.service(t, "second")
	c.refused(t, second, "PoolExhausted")
	if err := c.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	c.holds(t, second, "192.0.2.1")
}

func testTypeChange(t *testing.T, c *cluster) {
	c.start(t)
	c.pool(t, "p", "192.0.2.1/32")
	for _, to := range []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName} {
		first := c.service(t, "was-balanced")
		c.holds(t, first, "192.0.2.1")
		update(t, c, first, func(s *corev1.Service) {
			s.Spec.Type = to
			if to == corev1.ServiceTypeExternalName {
				s.Spec.ExternalName, s.Spec.ClusterIP, s.Spec.ClusterIPs = "example.com", "", nil
			}
		})
		until(t, c, first, "without a trace of ours", func(s *corev1.Service) bool {
			return len(s.Status.LoadBalancer.Ingress) == 0 && len(s.Status.Conditions) == 0
		})
		second := c.service(t, "next")
		c.holds(t, second, "192.0.2.1")
		for _, s := range []*corev1.Service{first, second} {
			if err := c.Delete(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func testRequests(t *testing.T, c *cluster) {
	c.start(t)
	manual := false
	named := &v1beta1.IPAddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: "named"},
		Spec:       v1beta1.IPAddressPoolSpec{Addresses: []string{"198.51.100.0/24"}, AutoAssign: &manual},
	}
	c.temporary(t, named)
	outside := c.service(t, "outside", asking(v1beta1.AnnotationAddresses, "203.0.113.9"))
	unreadable := c.service(t, "unreadable", asking(v1beta1.AnnotationAddresses, "192.0.2.300"))
	lost := c.service(t, "lost", asking(v1beta1.AnnotationPool, "nowhere"))
	good := c.service(t, "good", asking(v1beta1.AnnotationAddresses, "198.51.100.7"))
	c.holds(t, good, "198.51.100.7")
	taken := c.service(t, "taken", asking(v1beta1.AnnotationAddresses, "198.51.100.7"))
	pooled := c.service(t, "pooled", asking(v1beta1.AnnotationPool, "named"))
	moved := c.service(t, "moved", asking("metallb.universe.tf/loadBalancerIPs", "198.51.100.9"), func(s *corev1.Service) {
		none := false
		s.Spec.AllocateLoadBalancerNodePorts, s.Spec.LoadBalancerIP = &none, "198.51.100.10"
	})
	c.holds(t, moved, "198.51.100.9")
	c.told(t, moved, "RequestConflict")
	c.refused(t, outside, "RequestOutsidePools")
	c.refused(t, unreadable, "InvalidRequest")
	c.refused(t, lost, "PoolNotFound")
	c.refused(t, taken, "RequestTaken")
	c.holds(t, pooled, "198.51.100.0")

	update(t, c, good, asking(v1beta1.AnnotationAddresses, "198.51.100.8"))
	c.holds(t, good, "198.51.100.8")
	c.told(t, good, v1beta1.ReasonReleased)
	c.holds(t, taken, "198.51.100.7")
}

func testClass(t *testing.T, c *cluster) {
	const class = "fairlead.dev/other"
	classed := func(s *corev1.Service) { name := class; s.Spec.LoadBalancerClass = &name }
	stop := c.start(t)
	c.pool(t, "p", "192.0.2.0/24")
	theirs := c.service(t, "theirs", classed)
	ours := c.service(t, "ours")
	c.holds(t, ours, "192.0.2.0")
	until(t, c, theirs, "read", func(*corev1.Service) bool { return true })
	if len(theirs.Status.Conditions) > 0 || len(theirs.Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("a Service of another class was touched: %+v", theirs.Status)
	}
	stop()
	stop = c.start(t, func(o *options) { o.classes.Name = class })
	c.holds(t, theirs, "192.0.2.1")
	plain := c.service(t, "plain")
	c.holds(t, c.service(t, "barrier", classed), "192.0.2.2")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(plain), plain); err != nil || len(ips(plain)) > 0 {
		t.Errorf("a Service without a class has %v: %v", ips(plain), err)
	}
	unserved := func() {
		c.refused(t, ours, "ClassNotServed")
		c.told(t, ours, "ClassNotServed")
		if got := ips(ours); !slices.Equal(got, []string{"192.0.2.0"}) {
			t.Errorf("a Service that is served no more has %v", got)
		}
	}
	unserved()
	stop()
	stop = c.start(t, func(o *options) { o.classes = view.Classes{Name: class, Unclassed: true} })
	c.holds(t, plain, "192.0.2.3")
	c.holds(t, theirs, "192.0.2.1")
	c.holds(t, ours, "192.0.2.0")
	stop()
	version := theirs.ResourceVersion
	c.start(t, func(o *options) { o.classes.Name = class }) // without serveUnclassed
	unserved()
	before := ours.DeepCopy() // another load balancer takes over
	ours.Status.LoadBalancer.Ingress[0].IP = "203.0.113.9"
	if err := c.Status().Patch(t.Context(), ours, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	until(t, c, ours, "without a condition of ours", func(s *corev1.Service) bool {
		return meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated) == nil && ips(s)[0] == "203.0.113.9"
	})
	until(t, c, theirs, "at rest", func(s *corev1.Service) bool { return s.ResourceVersion == version })
	until(t, c, plain, "told, too", func(s *corev1.Service) bool {
		return meta.IsStatusConditionFalse(s.Status.Conditions, v1beta1.ConditionAllocated)
	})
}

func testReferences(t *testing.T, c *cluster) {
	c.start(t)
	l2 := &v1beta1.L2Advertisement{
		ObjectMeta: metav1.ObjectMeta{Name: "l2"},
		Spec:       v1beta1.L2AdvertisementSpec{IPAddressPools: []string{"later"}},
	}
	bgp := &v1beta1.BGPAdvertisement{
		ObjectMeta: metav1.ObjectMeta{Name: "bgp"},
		Spec:       v1beta1.BGPAdvertisementSpec{Peers: []string{"router"}},
	}
	peer := &v1beta1.BGPPeer{
		ObjectMeta: metav1.ObjectMeta{Name: "router"},
		Spec: v1beta1.BGPPeerSpec{
			MyASN: 64500, PeerASN: 64512, PeerAddress: "192.0.2.254",
			PasswordSecret: &v1beta1.SecretReference{Name: "router-password"},
		},
	}
	twin := &v1beta1.BGPPeer{
		ObjectMeta: metav1.ObjectMeta{Name: "twin"},
		Spec:       v1beta1.BGPPeerSpec{MyASN: 64500, PeerASN: 64512, PeerAddress: "192.0.2.254"},
	}
	is := func(conditions []metav1.Condition, reason string) bool {
		condition := meta.FindStatusCondition(conditions, v1beta1.ConditionReady)
		return condition != nil && condition.Reason == reason && (condition.Status == metav1.ConditionTrue) == (reason == v1beta1.ReasonReady)
	}
	l2Is := func(reason string) func(*v1beta1.L2Advertisement) bool {
		return func(a *v1beta1.L2Advertisement) bool { return is(a.Status.Conditions, reason) }
	}
	bgpIs := func(reason string) func(*v1beta1.BGPAdvertisement) bool {
		return func(a *v1beta1.BGPAdvertisement) bool { return is(a.Status.Conditions, reason) }
	}
	peerIs := func(reason string) func(*v1beta1.BGPPeer) bool {
		return func(p *v1beta1.BGPPeer) bool { return is(p.Status.Conditions, reason) }
	}
	c.temporary(t, l2)
	c.temporary(t, bgp)
	until(t, c, l2, "without its pool", l2Is("PoolNotFound"))
	until(t, c, bgp, "without its peer", bgpIs("PeerNotFound"))
	c.pool(t, "later", "192.0.2.0/30")
	c.temporary(t, peer)
	until(t, c, l2, "ready", l2Is(v1beta1.ReasonReady))
	until(t, c, bgp, "ready", bgpIs(v1beta1.ReasonReady))

	until(t, c, peer, "without its Secret", peerIs("SecretMissing"))
	password := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: "router-password"},
		Type:       corev1.SecretTypeBasicAuth,
		StringData: map[string]string{corev1.BasicAuthPasswordKey: "not for the eyes of the controller"},
	}
	c.temporary(t, password)
	until(t, c, peer, "ready", peerIs(v1beta1.ReasonReady))

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	c.temporary(t, node)
	c.temporary(t, twin)
	until(t, c, twin, "a duplicate", peerIs("PeerDuplicate"))
	update(t, c, twin, func(p *v1beta1.BGPPeer) {
		p.Spec.NodeSelectors = []metav1.LabelSelector{{MatchLabels: map[string]string{"rack": "2"}}}
	})
	until(t, c, twin, "ready", peerIs(v1beta1.ReasonReady))
	update(t, c, node, func(n *corev1.Node) { n.Labels = map[string]string{"rack": "2"} })
	until(t, c, twin, "a duplicate on that node", peerIs("PeerDuplicate"))
}

func testHelloKey(t *testing.T, c *cluster) {
	c.start(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: v1beta1.HelloSecret}}
	filled := func(s *corev1.Secret) bool { return len(s.Data[v1beta1.HelloSecretKey]) == 32 }
	until(t, c, secret, "filled", filled)
	first := string(secret.Data[v1beta1.HelloSecretKey])
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: v1beta1.HelloSecret}}
	until(t, c, secret, "filled anew", func(s *corev1.Secret) bool {
		return filled(s) && string(s.Data[v1beta1.HelloSecretKey]) != first
	})
	update(t, c, secret, func(s *corev1.Secret) { s.Data[v1beta1.HelloSecretKey] = []byte("the user's own") })
	version := secret.ResourceVersion
	c.pool(t, "p", "192.0.2.0/24")
	c.holds(t, c.service(t, "barrier"), "192.0.2.0")
	until(t, c, secret, "there", func(*corev1.Secret) bool { return true })
	if secret.ResourceVersion != version {
		t.Errorf("the user's key was overwritten")
	}
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

func testHandover(t *testing.T, c *cluster) {
	probes := freeAddress(t)
	leading := c.start(t, func(o *options) { o.leaderElect = true })
	c.pool(t, "p", "192.0.2.0/24")
	c.holds(t, c.service(t, "barrier"), "192.0.2.0") // so that the first one leads
	c.start(t, func(o *options) { o.leaderElect, o.probeAddress = true, probes })
	serves(t, "http://"+probes+"/healthz", "ok")
	serves(t, "http://"+probes+"/readyz", "ok")
	began := time.Now()
	leading()
	c.holds(t, c.service(t, "after"), "192.0.2.1")
	t.Logf("hand-over and an address after a graceful stop: %v", time.Since(began).Round(time.Millisecond))
}

// freeAddress is one of loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serves waits until the page has the text.
func serves(t *testing.T, url, text string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		code, body := get(t, url)
		if code == http.StatusOK && strings.Contains(body, text) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s answers %d without %q: %s", url, code, text, body)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

func testBurst(t *testing.T, c *cluster) {
	size := 400
	if testing.Short() {
		size = 100 // the API server looks at all for each
	}
	c.start(t)
	c.pool(t, "p", "10.0.0.0/8")
	services := make([]*corev1.Service, size)
	began := time.Now()
	t.Run("create", func(t *testing.T) {
		for worker := range 8 {
			t.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				for i := worker; i < size; i += 8 {
					s := &corev1.Service{
						ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("burst-%d", i), Labels: map[string]string{"burst": "yes"}},
						Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
					}
					c.create(t, s)
					services[i] = s
				}
			})
		}
	})
	created := time.Since(began)
	for _, s := range services {
		until(t, c, s, "served", func(s *corev1.Service) bool { return len(ips(s)) == 1 })
	}
	t.Logf("%d Services created in %v, all served after %v", size, created.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	seen := map[string]bool{}
	for _, s := range services {
		seen[ips(s)[0]] = true
	}
	if len(seen) != size {
		t.Errorf("%d Services have %d addresses", size, len(seen))
	}

	began = time.Now()
	one := c.service(t, "one-more")
	until(t, c, one, "served", func(s *corev1.Service) bool { return len(ips(s)) == 1 })
	t.Logf("one more: %v from its creation to its address", time.Since(began).Round(time.Millisecond))
	for _, s := range services {
		if err := c.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// testFailover kills the process that leads in the middle of its work.
func testFailover(t *testing.T, c *cluster) {
	metrics := freeAddress(t)
	leader := exec.CommandContext(t.Context(), os.Args[0], "--metrics-bind-address="+metrics, "--health-probe-bind-address=0")
	leader.Env = append(os.Environ(), runMain+"=1", "KUBECONFIG="+c.kubeconfig)
	leader.Stderr = t.Output()
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	c.pool(t, "p", "192.0.2.0/24")
	first := c.service(t, "first")
	c.holds(t, first, "192.0.2.0")
	for _, line := range []string{
		`fairlead_pool_addresses{family="IPv4",pool="p",state="assigned"} 1`,
		`fairlead_pool_addresses{family="IPv4",pool="p",state="available"} 255`,
		`fairlead_services{state="allocated"} 1`,
		`fairlead_status_writes_total{kind="Service",result="ok"}`,
	} {
		serves(t, "http://"+metrics+"/metrics", line)
	}
	c.start(t, func(o *options) { o.leaderElect = true })

	services := make([]*corev1.Service, 60)
	for i := range services {
		services[i] = c.service(t, fmt.Sprintf("failover-%d", i))
		if i == len(services)/2 {
			if err := leader.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := leader.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the leader ended by itself: %v", err)
	}
	began := time.Now()
	seen := map[string]bool{"192.0.2.0": true}
	for _, s := range services {
		until(t, c, s, "served", func(s *corev1.Service) bool { return len(ips(s)) == 1 })
		seen[ips(s)[0]] = true
	}
	t.Logf("all served %v after the leader was killed", time.Since(began).Round(time.Millisecond))
	if len(seen) != len(services)+1 {
		t.Errorf("%d Services have %d addresses", len(services)+1, len(seen))
	}
	c.holds(t, first, "192.0.2.0")
}
