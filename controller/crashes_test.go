package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/controller/leasefence"
)

var (
	crashesFor  = flag.Duration("crashes.for", 30*time.Second, "how long TestCrashes goes on killing leaders")
	crashesSeed = flag.Uint64("crashes.seed", 0, "what users do in TestCrashes, and how leaders end; 0: something else each time")
	// crashesKubeconfig is also for who has a cluster with nodes: see e2e/scenarios.
	crashesKubeconfig = flag.String("crashes.kubeconfig", "", "the administrator's file for a cluster that has the chart installed and its controller\n"+
		"scaled to nothing, for TestCrashes to use in place of an API server of its own")
)

// crashesNamespace has the Services that users change in TestCrashes.
const crashesNamespace = "crashes"

// hasty is a lease for tests that end many leaders.
var hasty = leasefence.Lease{Duration: 4 * time.Second, Renew: 2500 * time.Millisecond, Retry: 400 * time.Millisecond}

// TestCrashes runs two controllers as processes against a real API server, while users
// change Services and pools and leaders end in every way: killed, stopped until another
// one leads and then let go on, and cut off; at some time, and at a write, before it
// reaches the API server, after it has, and when it does so late. Whoever watches the
// API server never sees two Services show one address that they do not share, nobody
// writes who does not lead, and in the end every Service is served.
func TestCrashes(t *testing.T) {
	t.Parallel()
	seed := *crashesSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-crashes.seed=%d", seed)
	var c *cluster
	if *crashesKubeconfig == "" {
		c = newCluster(t)
	} else {
		c = installed(t, *crashesKubeconfig)
	}
	h := newHavoc(t, c, seed)
	who := &leaders{}
	var replicas []*replica
	for i := range 2 {
		replicas = append(replicas, c.replica(t, strconv.Itoa(i), who))
	}
	for began := time.Now(); time.Since(began) < *crashesFor || !who.enough() && time.Since(began) < *crashesFor+patience; {
		leader := h.awaitLeader(t, who, replicas)
		h.act(t, 100*time.Millisecond)
		h.end(t, leader, who)
	}
	for _, r := range replicas {
		r.mend()
	}
	c.pool(t, "crashes-large", "198.51.100.0/24", "2001:db8::/64")
	for _, s := range h.services {
		update(t, c, s, func(s *corev1.Service) { delete(s.Annotations, v1beta1.AnnotationAddresses) })
		until(t, c, s, "served", func(s *corev1.Service) bool {
			condition := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAllocated)
			return s.Spec.Type != corev1.ServiceTypeLoadBalancer || len(ips(s)) == len(s.Spec.IPFamilies) && condition != nil && condition.Status == metav1.ConditionTrue
		})
	}
	enough := who.enough()
	who.mu.Lock()
	defer who.mu.Unlock()
	t.Logf("%d leaders, %d writes of statuses, %d Services created", who.changes, who.writes, h.created)
	for _, fault := range who.faults {
		t.Error(fault)
	}
	if !enough {
		t.Errorf("%d leaders and %d writes prove nothing", who.changes, who.writes)
	}
}

// replica is a controller behind a relay, a process that is started again when it ends.
type replica struct {
	*relay
	mu      sync.Mutex
	process *os.Process
	over    bool
}

func (c *cluster) replica(t *testing.T, name string, who *leaders) *replica {
	t.Helper()
	r := &replica{relay: newRelay(t, c.controller, who)}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig-"+name)
	config := clientcmdapi.NewConfig()
	config.Clusters["relay"] = &clientcmdapi.Cluster{Server: r.URL}
	config.Contexts["relay"] = &clientcmdapi.Context{Cluster: "relay"}
	config.CurrentContext = "relay"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for r.once(t, kubeconfig) {
		}
	})
	t.Cleanup(func() {
		r.mu.Lock()
		r.over = true
		r.mu.Unlock()
		r.signal(t, syscall.SIGKILL)
		running.Wait()
	})
	return r
}

// once runs the controller until it ends, and tells whether it is to run again.
func (r *replica) once(t *testing.T, kubeconfig string) bool {
	command := exec.Command(os.Args[0], "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--leader-elect-lease-duration="+hasty.Duration.String(), "--leader-elect-renew-deadline="+hasty.Renew.String(),
		"--leader-elect-retry-period="+hasty.Retry.String())
	command.Env = append(os.Environ(), runMain+"=1", "KUBECONFIG="+kubeconfig)
	command.Stderr = t.Output()
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		return false
	}
	err := command.Start()
	if err == nil {
		r.process = command.Process
	}
	r.mu.Unlock()
	if err != nil {
		t.Error(err)
		return false
	}
	_ = command.Wait() // it is killed, or has lost the lease
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.over
}

func (r *replica) signal(t *testing.T, s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return
	}
	if err := r.process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("%v: %v", s, err)
	}
}

// havoc is what users do, and how leaders end.
type havoc struct {
	*cluster
	random   *rand.Rand
	pool     *v1beta1.IPAddressPool
	services map[string]*corev1.Service
	created  int
	endings  []ending // still to come
}

// ending is one way to end a leader.
type ending struct {
	how  string // kill, stop or cut
	fate fate   // of the write at which it happens; "": at no write
}

func newHavoc(t *testing.T, c *cluster, seed uint64) *havoc {
	t.Helper()
	h := &havoc{cluster: c, random: rand.New(rand.NewPCG(seed, 0)), services: map[string]*corev1.Service{}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: crashesNamespace}}
	if err := client.IgnoreAlreadyExists(c.Create(t.Context(), namespace)); err != nil {
		t.Fatal(err)
	}
	h.pool = c.pool(t, "crashes", "192.0.2.0/28")
	t.Cleanup(func() {
		for _, s := range h.services {
			if err := client.IgnoreNotFound(c.Delete(context.Background(), s)); err != nil {
				t.Errorf("delete %s: %v", s.Name, err)
			}
		}
	})
	return h
}

// end ends the leader in the next way, and repairs what was broken once another one
// leads.
func (h *havoc) end(t *testing.T, leader *replica, who *leaders) {
	if len(h.endings) == 0 {
		for _, how := range []string{"kill", "stop", "cut"} {
			for _, f := range []fate{"", lost, landed, belated, answered} {
				h.endings = append(h.endings, ending{how, f})
			}
		}
		h.random.Shuffle(len(h.endings), func(i, j int) { h.endings[i], h.endings[j] = h.endings[j], h.endings[i] })
	}
	next := h.endings[0]
	h.endings = h.endings[1:]
	t.Logf("%s the leader at a write that is %q", next.how, next.fate)
	spring := map[string]func(){
		"kill": func() { leader.signal(t, syscall.SIGKILL) },
		"stop": func() { leader.signal(t, syscall.SIGSTOP) },
		"cut":  func() { leader.sever() },
	}[next.how]
	if next.fate == "" {
		spring()
	} else {
		sprung := leader.set(next.fate, spring).sprung
		deadline := time.After(patience)
		for waiting := true; waiting; {
			select {
			case <-sprung:
				waiting = false
			case <-deadline:
				t.Fatal("the leader writes no status")
			default:
				h.user(t)
				if who.leader() != leader.relay { // it has lost the lease by itself
					leader.disarm()
					return
				}
			}
		}
	}
	// Another one leads after the lease has run out, unless the leader was too fast.
	for gone := time.Now(); who.leader() == leader.relay && time.Since(gone) < 2*hasty.Duration; {
		h.act(t, 50*time.Millisecond)
	}
	h.act(t, 300*time.Millisecond)
	leader.signal(t, syscall.SIGCONT)
	h.act(t, 300*time.Millisecond)
	leader.mend()
}

// awaitLeader waits until somebody leads.
func (h *havoc) awaitLeader(t *testing.T, who *leaders, replicas []*replica) *replica {
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		leader := who.leader()
		for _, r := range replicas {
			if r.relay == leader {
				return r
			}
		}
		h.act(t, 50*time.Millisecond)
	}
	t.Fatal("nobody leads")
	return nil
}

// act lets users do something for a while.
func (h *havoc) act(t *testing.T, during time.Duration) {
	for began := time.Now(); time.Since(began) < during; {
		h.user(t)
	}
}

// user does one thing that users do.
func (h *havoc) user(t *testing.T) {
	time.Sleep(time.Duration(h.random.IntN(20)) * time.Millisecond)
	switch n := h.random.IntN(10); {
	case n < 5 && len(h.services) < 40:
		h.add(t)
	case n < 7:
		if s := h.any(); s != nil {
			delete(h.services, s.Name)
			if err := h.Delete(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	case n < 9:
		if s := h.any(); s != nil {
			update(t, h.cluster, s, func(s *corev1.Service) { s.Annotations[v1beta1.AnnotationAddresses] = h.request() })
		}
	default:
		update(t, h.cluster, h.pool, func(p *v1beta1.IPAddressPool) {
			p.Spec.Addresses = []string{[]string{"192.0.2.0/28", "192.0.2.8/29", "192.0.2.0/27"}[h.random.IntN(3)]}
			p.Spec.OnPoolChange = []v1beta1.PoolChange{v1beta1.PoolChangeKeep, v1beta1.PoolChangeRenumber}[h.random.IntN(2)]
		})
	}
}

func (h *havoc) add(t *testing.T) {
	h.created++
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: crashesNamespace, Name: fmt.Sprintf("s%d", h.created), Annotations: map[string]string{
			v1beta1.AnnotationShareKey:  []string{"", "", "", "k"}[h.random.IntN(4)],
			v1beta1.AnnotationAddresses: h.request(),
		}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 1 + h.random.Int32N(3)}},
			Selector: map[string]string{"app": "web"}, // where there are nodes: speakers announce what has endpoints
		},
	}
	h.services[s.Name] = s // before it is there: whoever gives up half-way must delete it
	h.create(t, s)
}

// request asks for nothing, or for some address.
func (h *havoc) request() string {
	if h.random.IntN(4) > 0 {
		return ""
	}
	return fmt.Sprintf("192.0.2.%d", h.random.IntN(20))
}

// any is one of the Services, nil if there is none.
func (h *havoc) any() *corev1.Service {
	if len(h.services) == 0 {
		return nil
	}
	names := make([]string, 0, len(h.services))
	for name := range h.services {
		names = append(names, name)
	}
	slices.Sort(names)
	return h.services[names[h.random.IntN(len(names))]]
}
