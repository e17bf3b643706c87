package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

var web = view.Ref{Namespace: "shop", Name: "web"}

const webPort = 30871

// asked is a node under test, and what it told of failures.
type asked struct {
	*Node
	t *testing.T

	mu       sync.Mutex
	failures []string
}

func newNode(t *testing.T) *asked {
	a := &asked{t: t}
	a.Node = New(Config{
		Node: "a", Metrics: prometheus.NewRegistry(), Log: testlog.New(t),
		Failed: func(service view.Ref, port uint16, err error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.failures = append(a.failures, fmt.Sprintf("%s %d %v", service, port, err))
		},
	})
	t.Cleanup(a.checks.close)
	return a
}

// applied has a pass succeed that wants these checks.
func (a *asked) applied(checks map[view.Ref]desired.HealthCheck) {
	a.Begin(&view.Cluster{Nodes: map[string]*view.Node{"a": {Name: "a"}}})
	a.Apply(desired.Node{Health: checks}, nil, nil)
}

func having(port uint16, ready map[addr.Family]int) desired.HealthCheck {
	return desired.HealthCheck{Port: port, Ready: ready}
}

// ask asks as a load balancer does, and returns status, the headers that count and the
// body, or the error.
func ask(t *testing.T, address, path string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case err != nil:
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	response.Header.Del("Date")
	var headers []string
	for _, name := range slices.Sorted(maps.Keys(response.Header)) {
		headers = append(headers, name+": "+strings.Join(response.Header[name], ", "))
	}
	return fmt.Sprintf("%s\n%s\n\n%s", response.Status, strings.Join(headers, "\n"), body)
}

// upstream is what kube-proxy v1.36 answers (pkg/proxy/healthcheck/service_health.go).
func upstream(ready int, healthy bool) string { return upstreamOf("web", ready, healthy) }

func upstreamOf(name string, ready int, healthy bool) string {
	status := "200 OK"
	if ready == 0 || !healthy {
		status = "503 Service Unavailable"
	}
	body := fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"%s\"\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %v\n}", name, ready, healthy)
	return fmt.Sprintf("%s\nContent-Length: %d\nContent-Type: application/json\nX-Content-Type-Options: nosniff\nX-Load-Balancing-Endpoint-Weight: %d\n\n%s",
		status, len(body), ready, body)
}

func at(family addr.Family, port int) string {
	if family == addr.IPv4 {
		return fmt.Sprintf("127.0.0.1:%d", port)
	}
	return fmt.Sprintf("[::1]:%d", port)
}

func expect(t *testing.T, family addr.Family, port int, want string) {
	t.Helper()
	if got := ask(t, at(family, port), "/any/path"); got != want {
		t.Errorf("%s:\n%s\nwant\n%s", family, got, want)
	}
}

// eventually is the answer once somebody listens.
func eventually(t *testing.T, address, path string) string {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if got := ask(t, address, path); got != "refused" || time.Now().After(limit) {
			return got
		}
	}
}

// start runs the node; stop returns when it has ended.
func start(t *testing.T, a *asked) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestEachFamilyAnswersForItself(t *testing.T) {
	n := newNode(t)
	n.applied(map[view.Ref]desired.HealthCheck{web: having(webPort, map[addr.Family]int{addr.IPv4: 2, addr.IPv6: 0})})
	expect(t, addr.IPv4, webPort, upstream(2, true))
	expect(t, addr.IPv6, webPort, upstream(0, true))

	n.applied(map[view.Ref]desired.HealthCheck{web: having(webPort, map[addr.Family]int{addr.IPv4: 0, addr.IPv6: 1})})
	expect(t, addr.IPv4, webPort, upstream(0, true))
	expect(t, addr.IPv6, webPort, upstream(1, true))

	n.applied(nil)
	expect(t, addr.IPv4, webPort, "refused")
	expect(t, addr.IPv6, webPort, "refused")
}

// The nodes of a cluster of two families have addresses of both, and who looks for nodes
// with endpoints of a Service of one family may ask by the other.
func TestTheOnlyFamilyAnswersForBoth(t *testing.T) {
	n := newNode(t)
	both := map[addr.Family]int{addr.IPv4: 2, addr.IPv6: 3}
	for _, only := range []addr.Family{addr.IPv4, addr.IPv6, addr.IPv4} {
		n.applied(map[view.Ref]desired.HealthCheck{web: having(webPort, map[addr.Family]int{only: 1})})
		expect(t, addr.IPv4, webPort, upstream(1, true))
		expect(t, addr.IPv6, webPort, upstream(1, true))

		n.applied(map[view.Ref]desired.HealthCheck{web: having(webPort, both)})
		expect(t, addr.IPv4, webPort, upstream(2, true))
		expect(t, addr.IPv6, webPort, upstream(3, true))
	}
	if len(n.failures) > 0 {
		t.Errorf("ports could not be served: %q", n.failures)
	}
}

func TestAProxyThatIsUnwellGetsNoClients(t *testing.T) {
	n := newNode(t)
	n.applied(map[view.Ref]desired.HealthCheck{web: having(webPort, map[addr.Family]int{addr.IPv4: 2})})
	n.proxy.mu.Lock()
	n.proxy.waiting = time.Now().Add(-patience)
	n.proxy.mu.Unlock()
	expect(t, addr.IPv4, webPort, upstream(2, false))
	n.applied(map[view.Ref]desired.HealthCheck{web: having(webPort, map[addr.Family]int{addr.IPv4: 2})})
	expect(t, addr.IPv4, webPort, upstream(2, true))
}

func TestAServiceThatIsNotServedHereGetsNoClients(t *testing.T) {
	n := newNode(t)
	wanted := map[view.Ref]desired.HealthCheck{web: having(webPort, map[addr.Family]int{addr.IPv4: 2, addr.IPv6: 3})}
	key := desired.PortKey{Service: web, Protocol: view.TCP, Family: addr.IPv4}
	leaving := desired.PortKey{Service: web, Name: "leaving", Protocol: view.TCP, Family: addr.IPv4}
	endpoints := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8080")}
	cluster := &view.Cluster{Nodes: map[string]*view.Node{"a": {}}}
	for name, test := range map[string]struct {
		missing outcome.Missing
		want    int
	}{
		"all is in place":                        {nil, 2},
		"nothing is in the kernel":               {outcome.Missing{key: {}}, 0},
		"older local endpoints are":              {outcome.Missing{key: {Port: 80, ExternalLocal: true, Local: endpoints}}, 2},
		"endpoints on other nodes only":          {outcome.Missing{key: {Port: 80, ExternalLocal: true, Cluster: endpoints}}, 0},
		"the policy was Cluster and still is":    {outcome.Missing{key: {Port: 80, Cluster: endpoints}}, 2},
		"a port of another Service lacks":        {outcome.Missing{{Service: view.Ref{Namespace: "shop", Name: "x"}, Family: addr.IPv4}: {}}, 2},
		"a Service without a check lacks a port": {outcome.Missing{{Service: view.Ref{Name: "y"}}: {}}, 2},
		"a port of it that is to go is left":     {outcome.Missing{leaving: {Port: 81}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			cluster.Since = cluster.Revision // there is no news: it is a resync
			cluster.Revision = 1
			n.Begin(cluster)
			ports := map[desired.PortKey]desired.Port{key: {}}
			for each := range test.missing {
				ports[each] = desired.Port{}
			}
			delete(ports, leaving)
			n.Apply(desired.Node{Health: wanted, Forwarding: desired.Forwarding{Ports: ports}}, test.missing, nil)
			n.proxy.applied(addr.IPv4) // which is another matter
			expect(t, addr.IPv4, webPort, upstream(test.want, true))
			expect(t, addr.IPv6, webPort, upstream(3, true))
		})
	}
}

// A host that has not a family can listen in the other one alone, and nobody is told of what cannot be.
func TestNothingListensInAFamilyThatTheHostHasNot(t *testing.T) {
	n, other := newNode(t), view.Ref{Namespace: "shop", Name: "other"}
	wanted := map[view.Ref]desired.HealthCheck{
		web:   having(webPort, map[addr.Family]int{addr.IPv4: 2, addr.IPv6: 1}),
		other: having(webPort+1, map[addr.Family]int{addr.IPv4: 1}),
	}
	absent := &outcome.FamilyError{Family: addr.IPv6, Err: outcome.Caused(outcome.ReasonFamilyAbsent, errors.New("none"))}
	cluster := &view.Cluster{Nodes: map[string]*view.Node{"a": {}}, Changes: view.Changes{Revision: 1}}
	for _, step := range []struct {
		err error
		six string
	}{{nil, upstream(1, true)}, {absent, "refused"}, {nil, upstream(1, true)}} {
		n.Begin(cluster) // of which only the first time is news
		n.Apply(desired.Node{Health: wanted}, nil, step.err)
		expect(t, addr.IPv4, webPort, upstream(2, true))
		expect(t, addr.IPv6, webPort, step.six)
		expect(t, addr.IPv4, webPort+1, upstreamOf("other", 1, true))
	}
	if len(n.failures) > 0 {
		t.Errorf("failures %q", n.failures)
	}
}

func TestOnlyWhatIsNewIsLookedAt(t *testing.T) {
	n, other := newNode(t), view.Ref{Namespace: "shop", Name: "other"}
	pass := func(revision, since uint64, webReady int, touched ...view.Ref) {
		c := &view.Cluster{Nodes: map[string]*view.Node{"a": {}}, Changes: view.Changes{Revision: revision, Since: since, Touched: map[view.Ref]struct{}{}}}
		for _, ref := range touched {
			c.Touched[ref] = struct{}{}
		}
		n.Begin(c)
		n.Apply(desired.Node{Health: map[view.Ref]desired.HealthCheck{web: having(webPort, map[addr.Family]int{addr.IPv4: webReady})}}, nil, nil)
	}
	pass(1, 0, 1)
	expect(t, addr.IPv4, webPort, upstream(1, true))
	pass(2, 1, 2, other)
	expect(t, addr.IPv4, webPort, upstream(1, true)) // nobody said that it changed
	pass(3, 2, 2, other, web)
	expect(t, addr.IPv4, webPort, upstream(2, true))
	pass(5, 4, 3) // what came in between was not seen
	expect(t, addr.IPv4, webPort, upstream(3, true))
}

func TestAClosedCheckListensNoMore(t *testing.T) {
	n := newNode(t)
	n.applied(map[view.Ref]desired.HealthCheck{web: having(webPort, map[addr.Family]int{addr.IPv4: 1})})
	var dialer net.Dialer
	kept, err := dialer.DialContext(t.Context(), "tcp", at(addr.IPv4, webPort))
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	replies := bufio.NewReader(kept)
	request := func() error {
		if _, err := io.WriteString(kept, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		response, err := http.ReadResponse(replies, nil)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.ReadAll(response.Body)
		return err
	}
	for range 2 { // kept alive
		if err := request(); err != nil {
			t.Fatal(err)
		}
	}
	n.applied(nil)
	expect(t, addr.IPv4, webPort, "refused")
	if err := kept.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := request(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection of before still works (%v)", err)
	}
}

func TestAPortThatMovesIsAnsweredByItsNewService(t *testing.T) {
	n, other := newNode(t), view.Ref{Namespace: "shop", Name: "other"}
	one := map[addr.Family]int{addr.IPv4: 1}
	n.applied(map[view.Ref]desired.HealthCheck{web: having(webPort, one), other: having(webPort+1, one)})
	n.applied(map[view.Ref]desired.HealthCheck{web: having(webPort+1, one), other: having(webPort, one)})
	expect(t, addr.IPv4, webPort+1, upstream(1, true))
	expect(t, addr.IPv4, webPort, upstreamOf("other", 1, true))
	if len(n.failures) > 0 {
		t.Errorf("failures %q", n.failures)
	}
}

func TestATakenPortIsToldOnceAndServedWhenItIsFree(t *testing.T) {
	var listen net.ListenConfig
	foreign, err := listen.Listen(t.Context(), "tcp4", at(addr.IPv4, webPort))
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	n, other := newNode(t), view.Ref{Namespace: "shop", Name: "other"}
	both := map[addr.Family]int{addr.IPv4: 1, addr.IPv6: 1}
	wanted := map[view.Ref]desired.HealthCheck{web: having(webPort, both), other: having(webPort+1, both)}
	for range 3 {
		n.applied(wanted)
	}
	expect(t, addr.IPv6, webPort, upstream(1, true))
	for _, family := range addr.Families() {
		if got := ask(t, at(family, webPort+1), "/"); !strings.HasPrefix(got, "200") {
			t.Errorf("%s of another Service: %s", family, got)
		}
	}
	if failing := testutil.ToFloat64(n.checks.failing()); failing != 1 {
		t.Errorf("%v ports are counted as failing, want one", failing)
	}
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(time.Minute); ask(t, at(addr.IPv4, webPort), "/") != upstream(1, true); {
		if time.Now().After(limit) {
			t.Fatal("a port that is free again is not served")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if failing := testutil.ToFloat64(n.checks.failing()); failing != 0 {
		t.Errorf("%v ports are counted as failing, want none", failing)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.failures) != 1 || n.failures[0] != "shop/web 30871 listen tcp4 0.0.0.0:30871: bind: address already in use" {
		t.Errorf("failures %q, want one about the port", n.failures)
	}
}
