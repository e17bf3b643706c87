package apiservers

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// door is a TCP proxy before the API server, as Talos, k3s and RKE2 have one on each node. It stands for one of several servers.
type door struct {
	net.Listener
	mu      sync.Mutex
	stopped bool
	open    []net.Conn
}

func newDoor(t *testing.T, to string) *door {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{Listener: l}
	t.Cleanup(d.kill)
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			d.open = append(d.open, in)
			stopped := d.stopped
			d.mu.Unlock()
			if stopped {
				continue // accepted, as the kernel does for a process that stands
			}
			out, err := new(net.Dialer).DialContext(context.Background(), "tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			go d.pass(in, out)
			go d.pass(out, in)
		}
	}()
	return d
}

// pass copies what one side says, until the door is stopped.
func (d *door) pass(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		for d.isStopped() {
			time.Sleep(10 * time.Millisecond) // until the test ends
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (d *door) isStopped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopped
}

// stop has it say nothing more, and take connections.
func (d *door) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
}

// kill ends all connections, and refuses new ones.
func (d *door) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = false
	_ = d.Close()
	for _, c := range d.open {
		_ = c.Close()
	}
}

// TestAnotherServerIsAsked watches by one of three servers, of which those that are asked are killed or stand still, and one
// has the certificate of another cluster: changes go on to arrive within seconds.
func TestAnotherServerIsAsked(t *testing.T) {
	// As the chart has it.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "3")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "3")
	server := apiserver.Start(t)
	address := strings.Trim(strings.TrimPrefix(server.Config.Host, "https:"), "/")
	stranger := httptest.NewTLSServer(nil)
	t.Cleanup(stranger.Close)
	stranger.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	doors := []*door{newDoor(t, address), newDoor(t, address), newDoor(t, address)}
	given := []string{doors[0].Addr().String(), stranger.Listener.Addr().String(), doors[1].Addr().String()}
	servers := New("", given, slog.New(slog.NewTextHandler(t.Output(), nil)))
	servers.asked = given[0]
	config := rest.CopyConfig(server.Config)
	config.Host = "https://" + given[0]
	direct, api := kubernetes.NewForConfigOrDie(server.Config), kubernetes.NewForConfigOrDie(servers.Reach(config))
	factory := informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithNamespace(metav1.NamespaceDefault))
	maps := factory.Core().V1().ConfigMaps()
	informer := maps.Informer()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	arrives := func(name string, within time.Duration) {
		t.Helper()
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := direct.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for !slices.Contains(informer.GetIndexer().ListKeys(), metav1.NamespaceDefault+"/"+name) {
			if time.Since(began) > within {
				t.Fatalf("%s is not seen within %v", name, within)
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("%s is seen after %v, by %s", name, time.Since(began).Round(time.Millisecond), servers.inTurn()[0])
	}
	arrives("all-well", time.Minute)
	doors[0].kill()
	arrives("killed", 30*time.Second)
	servers.Learn([]netip.AddrPort{netip.MustParseAddrPort(doors[2].Addr().String())})
	doors[1].stop()
	arrives("stopped", time.Minute)
	if now := servers.inTurn()[0]; now != doors[2].Addr().String() {
		t.Errorf("%s is asked, want the one that was learned", now)
	}
	// What is written arrives once.
	created, err := api.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "written"}}, metav1.CreateOptions{})
	if err != nil || created.Name != "written" {
		t.Errorf("created %v, %v", created, err)
	}
	doors[2].kill()
	if _, err := api.Discovery().ServerVersion(); err == nil {
		t.Error("a server answers that is not there")
	} else if text := err.Error(); !strings.Contains(text, "certificate") || !strings.Contains(text, "refused") {
		t.Errorf("no server is there: %s", text)
	}
}

// TestServersAreRead: hosts with ports, of both families.
func TestServersAreRead(t *testing.T) {
	if got, err := Parse(" 192.0.2.5:6443,[2001:db8::5]:6443, cp.example.com:443,"); err != nil || !slices.Equal(got, []string{"192.0.2.5:6443", "[2001:db8::5]:6443", "cp.example.com:443"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"192.0.2.5", "2001:db8::5:x", ":6443", "a:", "https://a:1:2"} {
		if got, err := Parse(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q is read as %v, %v", bad, got, err)
		}
	}
}

// TestNodesBeginWithDifferentServers, or all would go to one and the same when it ends.
func TestNodesBeginWithDifferentServers(t *testing.T) {
	first := map[string]int{}
	for _, node := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
		first[New(node, []string{"1:1", "2:2", "3:3"}, nil).inTurn()[0]]++
	}
	for server, nodes := range first {
		if nodes > 8 || len(first) != 3 {
			t.Errorf("%d of 12 nodes begin with %s: %v", nodes, server, first)
		}
	}
}

// TestAServerThatCannotServeIsLeft: one that has lost its etcd, or a proxy without a server behind it, says so.
func TestAServerThatCannotServeIsLeft(t *testing.T) {
	serve := func(status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	unable, able := serve(http.StatusServiceUnavailable), serve(http.StatusOK)
	for _, given := range [][]string{{unable, able}, {able, unable}, {unable, unable}} {
		servers := New("", given, slog.New(slog.DiscardHandler))
		servers.asked = given[0]
		client := http.Client{Transport: &transport{servers: servers, next: http.DefaultTransport}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+given[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if want := map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[slices.Contains(given, able)]; response.StatusCode != want {
			t.Errorf("%v answers %d, want %d", given, response.StatusCode, want)
		}
		if slices.Contains(given, able) && servers.inTurn()[0] != able {
			t.Errorf("%s is asked from now on", servers.inTurn()[0])
		}
	}
}
