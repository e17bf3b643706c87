package health

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

// get is status and body of what the proxy answers.
func (a *asked) get(path string) string {
	recorder := httptest.NewRecorder()
	a.proxy.handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	if got := recorder.Header(); len(got) != 2 || got.Get("Content-Type") != "application/json" || got.Get("X-Content-Type-Options") != "nosniff" {
		a.t.Errorf("%s: headers %v", path, got)
	}
	return fmt.Sprint(recorder.Code, " ", recorder.Body)
}

// expect checks both answers. healthz and livez are their statuses; updated, eligible,
// healthy and status what they say.
func (a *asked) expect(healthz, livez int, updated time.Time, eligible, healthy bool, status string) {
	a.t.Helper()
	if status != "" {
		status = `,"status":{` + status + `}`
	}
	times := func(code int) string {
		last := updated
		if code == http.StatusOK {
			last = time.Now()
		}
		return fmt.Sprintf(`{"lastUpdated":"%s","currentTime":"%s"`, last.Format(time.RFC3339Nano), time.Now().Format(time.RFC3339Nano))
	}
	if got, want := a.get("/healthz"), fmt.Sprintf(`%d %s,"nodeEligible":%v,"healthy":%v%s}`, healthz, times(healthz), eligible, healthy, status); got != want {
		a.t.Errorf("/healthz\n%s\nwant\n%s", got, want)
	}
	if got, want := a.get("/livez"), fmt.Sprintf(`%d %s,"healthy":%v%s}`, livez, times(livez), healthy, status); got != want {
		a.t.Errorf("/livez\n%s\nwant\n%s", got, want)
	}
}

func family(f addr.Family, updated time.Time, healthy bool) string {
	return fmt.Sprintf(`"%s":{"lastUpdated":"%s","healthy":%v}`, f, updated.Format(time.RFC3339Nano), healthy)
}

func both(updated time.Time, healthy bool) string {
	return family(addr.IPv4, updated, healthy) + "," + family(addr.IPv6, updated, healthy)
}

func withNode(own *view.Node) *view.Cluster {
	return &view.Cluster{Nodes: map[string]*view.Node{"a": own, "b": {Name: "b", Condemned: true}}}
}

func inBubble(t *testing.T, test func(a *asked)) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{t: t}
		a.Node = New(Config{Node: "a", Metrics: prometheus.NewRegistry(), Log: testlog.New(t)})
		test(a)
	})
}

func TestAProxyThatBeginsIsHealthy(t *testing.T) {
	inBubble(t, func(a *asked) {
		a.Changed()
		time.Sleep(time.Hour) // the API server does not answer: nothing is known
		a.expect(503, 200, time.Time{}, false, true, "")
		a.Begin(withNode(&view.Node{}))
		time.Sleep(patience - time.Millisecond)
		a.expect(200, 200, time.Time{}, true, true, "")
		time.Sleep(time.Millisecond) // the first rules are not written
		a.expect(503, 503, time.Time{}, true, false, both(time.Time{}, false))
		a.Apply(desired.Node{}, nil, nil)
		a.expect(200, 200, time.Time{}, true, true, both(time.Now(), true))
	})
}

func TestAChangeThatWaitsTooLong(t *testing.T) {
	inBubble(t, func(a *asked) {
		a.Begin(withNode(&view.Node{}))
		a.Apply(desired.Node{}, nil, nil)
		updated := time.Now()
		time.Sleep(time.Hour) // nothing happens
		a.expect(200, 200, time.Time{}, true, true, both(updated, true))
		a.Changed()
		time.Sleep(30 * time.Second)
		a.Changed() // does not make the first one younger
		time.Sleep(30*time.Second - time.Millisecond)
		a.expect(200, 200, time.Time{}, true, true, both(updated, true))
		time.Sleep(time.Millisecond)
		a.expect(503, 503, updated, true, false, both(updated, false))
		a.Begin(withNode(&view.Node{}))
		a.expect(503, 503, updated, true, false, both(updated, false))
		a.Changed()
		a.Apply(desired.Node{}, nil, nil)
		a.expect(200, 200, time.Time{}, true, true, both(time.Now(), true))
		updated = time.Now()
		time.Sleep(patience) // what came while the kernel was written
		a.expect(503, 503, updated, true, false, both(updated, false))
	})
}

// TestAHostThatForwardsNothing is unwell at once: it attracts traffic that it loses.
func TestAHostThatForwardsNothing(t *testing.T) {
	inBubble(t, func(a *asked) {
		a.Begin(withNode(&view.Node{}))
		a.Apply(desired.Node{}, nil, nil)
		updated := time.Now()
		time.Sleep(time.Second)
		a.Begin(withNode(&view.Node{}))
		a.Apply(desired.Node{}, outcome.Missing{{Service: web, Family: addr.IPv4}: {}},
			&outcome.FamilyError{Family: addr.IPv4, Settled: true, Err: outcome.Caused(outcome.ReasonForwardingDisabled, errors.New("off"))})
		a.expect(503, 503, time.Now(), true, false, family(addr.IPv4, updated, false)+","+family(addr.IPv6, time.Now(), true))
		a.Begin(withNode(&view.Node{}))
		a.Apply(desired.Node{}, nil, nil)
		a.expect(200, 200, time.Now(), true, true, both(time.Now(), true))
	})
}

func TestOneFamilyFails(t *testing.T) {
	inBubble(t, func(a *asked) {
		a.Begin(withNode(&view.Node{}))
		a.Apply(desired.Node{}, nil, nil)
		updated := time.Now()
		missing := outcome.Missing{{Service: web, Family: addr.IPv6}: {}}
		for range 6 { // retried
			time.Sleep(10 * time.Second)
			a.Begin(withNode(&view.Node{}))
			a.Apply(desired.Node{}, missing, errors.New("the lock"))
		}
		failing := updated.Add(10 * time.Second)
		time.Sleep(time.Until(failing.Add(patience)))
		last := updated.Add(time.Minute)
		a.expect(503, 503, last, true, false, family(addr.IPv4, last, true)+","+family(addr.IPv6, updated, false))
		if got := testutil.ToFloat64(a.proxy.oldest()); got != patience.Seconds() {
			t.Errorf("the oldest change is said to be %v s old", got)
		}
	})
}

// TestAFamilyThatTheHostHasNot leaves the node as well as it is with the other family alone, until
// the host has it and it fails.
func TestAFamilyThatTheHostHasNot(t *testing.T) {
	inBubble(t, func(a *asked) {
		missing := outcome.Missing{{Service: web, Family: addr.IPv6}: {}}
		pass := func(why error) time.Time {
			a.Changed()
			a.Begin(withNode(&view.Node{}))
			a.Apply(desired.Node{}, missing, &outcome.FamilyError{Family: addr.IPv6, Err: why})
			return time.Now()
		}
		none := errors.Join(outcome.Caused(outcome.ReasonFamilyAbsent, errors.New("none")), errors.New("exit status 3"))
		for range 6 {
			updated := pass(none)
			time.Sleep(30 * time.Second)
			a.expect(200, 200, time.Time{}, true, true, family(addr.IPv4, updated, true))
		}
		if got := testutil.ToFloat64(a.proxy.oldest()); got != 0 {
			t.Errorf("the oldest change is said to be %v s old", got)
		}
		updated := pass(errors.New("the lock"))
		time.Sleep(patience)
		a.expect(503, 503, updated, true, false, family(addr.IPv4, updated, true)+","+family(addr.IPv6, time.Time{}, false))
		updated = pass(none)
		a.expect(200, 200, time.Time{}, true, true, family(addr.IPv4, updated, true))
		a.Begin(withNode(&view.Node{}))
		a.Apply(desired.Node{}, nil, nil)
		a.expect(200, 200, time.Time{}, true, true, both(time.Now(), true))
	})
}

// TestWhatIsNoWantedPortIsNotForgotten has the kernel keep what is to go, or not take what no
// port is about: the node is as unwell as with a port that is missing.
func TestWhatIsNoWantedPortIsNotForgotten(t *testing.T) {
	for name, failed := range map[string]struct {
		missing outcome.Missing
		err     error
	}{
		"a deleted Service": {
			outcome.Missing{{Service: web, Family: addr.IPv6}: {Port: 80}},
			&outcome.FamilyError{Family: addr.IPv6, Settled: true, Err: errors.New("busy")},
		},
		"where pods send from": {nil, fmt.Errorf("apply: %w", &outcome.FamilyError{Family: addr.IPv6, Err: errors.New("busy")})},
	} {
		inBubble(t, func(a *asked) {
			t.Log(name)
			a.Begin(withNode(&view.Node{}))
			a.Apply(desired.Node{}, nil, nil)
			updated := time.Now()
			a.Changed()
			for range 6 {
				a.Begin(withNode(&view.Node{}))
				a.Apply(desired.Node{}, failed.missing, failed.err)
				time.Sleep(10 * time.Second)
			}
			last := updated.Add(50 * time.Second)
			a.expect(503, 503, last, true, false, family(addr.IPv4, last, true)+","+family(addr.IPv6, updated, false))
			a.Begin(withNode(&view.Node{}))
			a.Apply(desired.Node{}, nil, nil)
			a.expect(200, 200, time.Time{}, true, true, both(time.Now(), true))
		})
	}
}

func TestARefusedPortDoesNotTakeTheNodeOut(t *testing.T) {
	inBubble(t, func(a *asked) {
		bad := desired.PortKey{Service: web, Family: addr.IPv4}
		for range 100 {
			a.Begin(withNode(&view.Node{}))
			a.Apply(desired.Node{}, outcome.Missing{bad: {}}, fmt.Errorf("IPv4: %w", &outcome.RefusedError{Key: bad, Err: errors.New("no")}))
			time.Sleep(10 * time.Second)
		}
		updated := time.Now().Add(-10 * time.Second)
		a.expect(200, 200, time.Time{}, true, true, both(updated, true))
	})
}

func TestANodeThatGoesAwayGetsNoNewClients(t *testing.T) {
	inBubble(t, func(a *asked) {
		for name, own := range map[string]*view.Node{"unknown": nil, "deleted": {Deleting: true}, "condemned": {Condemned: true}} {
			a.Begin(withNode(own))
			a.Apply(desired.Node{}, nil, nil)
			t.Log(name)
			updated := time.Now()
			time.Sleep(time.Hour)
			a.expect(503, 200, updated, false, true, both(updated, true))
		}
		a.Begin(withNode(&view.Node{}))
		a.Apply(desired.Node{}, nil, nil)
		a.expect(200, 200, time.Time{}, true, true, both(time.Now(), true))
		for code, want := range map[string]float64{"200": 1, "503": 3} {
			if got := testutil.ToFloat64(a.proxy.healthz.WithLabelValues(code)); got != want {
				t.Errorf("/healthz counts %v answers of %s, want %v", got, code, want)
			}
		}
		if got := testutil.ToFloat64(a.proxy.livez.WithLabelValues("200")); got != 4 {
			t.Errorf("/livez counts %v answers of 200, want 4", got)
		}
	})
}

// The ports of kube-proxy, as clouds and the tests of Kubernetes ask them.
func TestPortsOfKubeProxy(t *testing.T) {
	n := newNode(t)
	n.config.ProxyAddress, n.config.StatusAddress = ":10256", "127.0.0.1:10249"
	n.config.Status = Status("nftables", http.NotFoundHandler())
	stop := start(t, n)
	n.applied(nil)
	for _, f := range addr.Families() {
		if got := eventually(t, at(f, 10256), "/healthz"); !strings.HasPrefix(got, "200 OK\n") || !strings.Contains(got, `"lastUpdated"`) {
			t.Errorf("%s: %s", f, got)
		}
	}
	if got := ask(t, at(addr.IPv4, 10256), "/"); !strings.HasPrefix(got, "404") {
		t.Errorf("another path: %s", got)
	}
	for path, want := range map[string]string{"/proxyMode": "nftables", "/healthz": "ok"} {
		want = fmt.Sprintf("200 OK\nContent-Length: %d\nContent-Type: text/plain; charset=utf-8\nX-Content-Type-Options: nosniff\n\n%s", len(want), want)
		if got := eventually(t, at(addr.IPv4, 10249), path); got != want {
			t.Errorf("%s: %s\nwant\n%s", path, got, want)
		}
	}
	for _, path := range []string{"/configz", "/flagz", "/statusz", "/metrics/slis", "/debug/pprof/"} { // as the guide says
		if got := ask(t, at(addr.IPv4, 10249), path); !strings.HasPrefix(got, "404") {
			t.Errorf("%s: %s", path, got)
		}
	}
	stop()
	for _, port := range []int{10256, 10249} {
		if got := ask(t, at(addr.IPv4, port), "/"); got != "refused" {
			t.Errorf("port %d after the end: %s", port, got)
		}
	}
}
