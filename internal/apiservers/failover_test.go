package apiservers

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// cluster has three API servers, and a node that watches by one of them.
type cluster struct {
	*testing.T
	given   []string
	members []member
	direct  []kubernetes.Interface // of each
	servers *Servers
	api     kubernetes.Interface

	mu    sync.Mutex
	asked map[string]int // requests by server
	seen  map[string]int // how often each object was added
	made  int
}

// newCluster has three API servers on one etcd, each with a certificate for its own address; in short, three doors of one.
func newCluster(t *testing.T) *cluster {
	at := []string{"192.0.2.11", "192.0.2.12", "192.0.2.13"}
	addresses(t, at...)
	c := &cluster{T: t, asked: map[string]int{}, seen: map[string]int{}}
	var config *rest.Config
	if testing.Short() {
		server := apiserver.Start(t)
		config = rest.CopyConfig(server.Config)
		config.ServerName = "localhost"
		for _, a := range at {
			c.members = append(c.members, newDoor(t, a+":6443", strings.Trim(strings.TrimPrefix(server.Config.Host, "https:"), "/")))
			c.direct = append(c.direct, kubernetes.NewForConfigOrDie(server.Config))
		}
	} else {
		first := apiserver.Start(t, apiserver.At(at[0]))
		all := []*apiserver.Server{first, first.Beside(t, apiserver.At(at[1])), first.Beside(t, apiserver.At(at[2]))}
		config = rest.CopyConfig(first.Config)
		config.CAData = nil
		for _, server := range all {
			config.CAData = bytes.Join([][]byte{config.CAData, server.Config.CAData}, nil)
			c.members = append(c.members, process{t, server})
			c.direct = append(c.direct, kubernetes.NewForConfigOrDie(server.Config))
		}
	}
	for _, a := range at {
		c.given = append(c.given, a+":6443")
	}
	// The last one is learned.
	c.servers = New("", c.given[:2], slog.New(slog.NewTextHandler(t.Output(), nil)))
	c.servers.Learn([]netip.AddrPort{netip.MustParseAddrPort(c.given[2])})
	c.servers.given, c.servers.asked = c.given[:2], c.given[0]
	config.Host = "https://" + c.given[0]
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{c, next} })
	c.api = kubernetes.NewForConfigOrDie(c.servers.Reach(config))
	return c
}

// counted are the requests of the node.
type counted struct {
	*cluster
	next http.RoundTripper
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.asked[r.URL.Host]++
	c.mu.Unlock()
	return c.next.RoundTrip(r)
}

// watch has the node watch ConfigMaps.
func (c *cluster) watch() {
	factory := informers.NewSharedInformerFactoryWithOptions(c.api, 0, informers.WithNamespace(metav1.NamespaceDefault))
	if _, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen[object.(*corev1.ConfigMap).Name]++
	}}); err != nil {
		c.Fatal(err)
	}
	factory.Start(c.Context().Done())
	factory.WaitForCacheSync(c.Context().Done())
	c.Cleanup(factory.Shutdown)
}

// arrives makes objects by one server until the first of them is seen, after what happens to another.
func (c *cluster) arrives(what string, by, asks int) {
	c.Helper()
	began, first := time.Now(), ""
	within(c.T, 40*time.Second, what, func() bool {
		name := fmt.Sprintf("n%05d", c.made)
		c.made++
		if first == "" {
			first = name
		}
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.direct[by].CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(c.Context(), object, metav1.CreateOptions{}); err != nil {
			c.Fatal(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.seen[first] > 0
	})
	_, asked := c.servers.inTurn(false)
	c.Logf("%s: a change is seen after %v, by %s; %d were made meanwhile", what, time.Since(began).Round(time.Millisecond), asked, c.made)
	if asked != c.given[asks] {
		c.Errorf("%s: %s is asked, want %s", what, asked, c.given[asks])
	}
}

// requests counts those that went to a server.
func (c *cluster) requests(to int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[c.given[to]]
}

// goesBack has the first server be tried by the next request.
func (c *cluster) goesBack(wants int) {
	c.Helper()
	c.servers.mu.Lock()
	c.servers.back = time.Now()
	c.servers.mu.Unlock()
	if _, err := c.api.Discovery().ServerVersion(); err != nil {
		c.Error(err)
	}
	if _, asked := c.servers.inTurn(false); asked != c.given[wants] {
		c.Errorf("%s is asked, want %s", asked, c.given[wants])
	}
}

// pingAsTheChartHasIt has clients ping an API server that is silent as the programs do.
func pingAsTheChartHasIt(t *testing.T) {
	t.Helper()
	env, err := os.ReadFile("../../charts/fairlead/templates/_helpers.tpl")
	if err != nil {
		t.Fatal(err)
	}
	pings := regexp.MustCompile(`- name: (HTTP2_\w+)\n  value: "(\d+)"`).FindAllStringSubmatch(string(env), -1)
	if len(pings) != 2 {
		t.Fatalf("the chart sets %q", pings)
	}
	for _, variable := range pings {
		t.Setenv(variable[1], variable[2])
	}
}

// TestAnotherServerIsAsked watches by one of three API servers. That one is killed, stands still, is a black hole or has the certificate of
// another cluster: changes go on to arrive within seconds, each once, and by the first server when that is back.
func TestAnotherServerIsAsked(t *testing.T) {
	pingAsTheChartHasIt(t)
	c := newCluster(t)
	c.watch()
	c.arrives("all well", 1, 0)
	c.members[0].kill()
	c.arrives("killed", 2, 1)
	before := c.requests(1)
	c.members[1].stop()
	c.arrives("stopped", 2, 2)
	if n := c.requests(1) - before; n > 0 {
		t.Errorf("a server that stands still is asked %d times more", n)
	}
	c.members[1].goOn()
	c.members[0].again()
	end := blackHole(t, "192.0.2.13")
	c.arrives("black hole", 1, 0)
	end()
	c.members[0].kill()
	end = stranger(t, c.given[0])
	c.arrives("another cluster's certificate", 2, 1)
	c.goesBack(1)
	end()
	c.members[0].again()
	c.goesBack(0)
	// What is written arrives once.
	created, err := c.api.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "written"}}, metav1.CreateOptions{})
	if err != nil || created.Name != "written" {
		t.Errorf("created %v, %v", created, err)
	}
	within(t, time.Minute, "all is seen", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.seen["written"] > 0 && len(c.seen) > c.made
	})
	for name, times := range c.seen {
		if times != 1 {
			t.Errorf("%s is seen %d times", name, times)
		}
	}
	for i, m := range c.members {
		if i > 0 {
			m.kill()
		}
	}
	c.members[0].kill()
	stranger(t, c.given[0])
	// A connection from before may be asked first, of which the client does not know yet that it is lost.
	within(t, time.Minute, "the error says what is wrong with each server", func() bool {
		_, err := c.api.Discovery().ServerVersion()
		if err == nil {
			t.Fatal("a server answers that is not there")
		}
		t.Logf("no server is there: %v", err)
		text := err.Error()
		return strings.Contains(text, "certificate") && strings.Contains(text, "refused")
	})
}
