package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/controller/leasefence"
	"fairlead.dev/fairlead/internal/serve/secure"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/testlog"
)

// waiting runs a controller that cannot begin until stop, which holds that it ends without an error.
func waiting(t *testing.T, cluster *rest.Config) (log testlog.Lines, probes string, stop func()) {
	t.Helper()
	log, probes = make(testlog.Lines, 10000), freeAddress(t)
	o := options{namespace: defaultNamespace, metrics: secure.Options{Address: "0"}, probeAddress: probes, lease: leasefence.Standard()}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- control(ctx, cluster, o, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(log, nil)))
	}()
	return log, probes, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controller ended with %v", err)
		}
	}
}

// waits holds that the controller lives, and says the same in its log, once, and of why it is not ready.
func waits(t *testing.T, log testlog.Lines, probes string, texts ...string) {
	t.Helper()
	serves(t, "http://"+probes+"/healthz", "ok")
	code, why := get(t, "http://"+probes+"/readyz")
	var told []string
	for len(log) > 0 {
		if next := <-log; strings.Contains(next, "the controller waits") {
			told = append(told, next)
		}
	}
	line := strings.Join(told, "")
	if code != http.StatusServiceUnavailable || len(told) != 1 {
		t.Errorf("it is ready by %d, and logs %q", code, line)
	}
	for _, text := range texts {
		if !strings.Contains(why, text) || !strings.Contains(line, text) {
			t.Errorf("%q is not in %q or not in %q", text, why, line)
		}
	}
}

// Where the chart is installed without kube-proxy and without saying where the API server is, the controller's log says what to do about it,
// and nothing of CRDs, which are there. What answers there may be another cluster.
func TestAnAPIServerThatCannotBeAskedIsTold(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	stranger := httptest.NewUnstartedServer(http.NotFoundHandler())
	stranger.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	stranger.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			asked.Add(1)
		}
	}
	stranger.StartTLS()
	t.Cleanup(stranger.Close)
	for name, test := range map[string]struct {
		host  string
		texts []string
	}{
		"nothing listens":     {"https://127.0.0.1:1", []string{"connection refused", "ClusterIP"}},
		"a stranger":          {stranger.URL, []string{"unknown authority", "another cluster"}},
		"a placeholder stays": {"https://API-SERVER:6443", []string{"API-SERVER is no name"}},
	} {
		t.Run(name, func(t *testing.T) {
			log, probes, stop := waiting(t, &rest.Config{Host: test.host})
			defer stop()
			serves(t, "http://"+probes+"/healthz", "ok")
			if test.host == stranger.URL {
				for limit := time.Now().Add(patience); asked.Load() < 4 && time.Now().Before(limit); {
					time.Sleep(20 * time.Millisecond)
				}
				if asked.Load() < 4 {
					t.Error("it is not asked again")
				}
			}
			waits(t, log, probes, append(test.texts, test.host, "controller.apiServer.host")...)
			if _, why := get(t, "http://"+probes+"/readyz"); strings.Contains(why, "CRD") {
				t.Errorf("it speaks of CRDs: %s", why)
			}
		})
	}
}

// Without the CRDs the controller lives on, says what to do, and begins when they come.
func TestAClusterWithoutOurKindsIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var all apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteAllOf(t.Context(), &apiextensionsv1.CustomResourceDefinition{}); err != nil {
		t.Fatal(err)
	}
	for left := all.DeepCopy(); len(left.Items) > 0; time.Sleep(20 * time.Millisecond) {
		if err := c.List(t.Context(), left); err != nil {
			t.Fatal(err)
		}
	}
	log, probes, stop := waiting(t, apiserver.Aged(c.controller))
	waits(t, log, probes, "BFDProfile, BGPAdvertisement", "v1.30.14", "upgrade the cluster to 1.31")
	stop()
	log, probes, stop = waiting(t, c.controller)
	defer stop()
	waits(t, log, probes, "BFDProfile, BGPAdvertisement", "fairlead-crds", "crds.install")
	for i := range all.Items {
		crd := &all.Items[i]
		crd.ObjectMeta = metav1.ObjectMeta{Name: crd.Name, Annotations: crd.Annotations}
		crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
		if err := client.IgnoreAlreadyExists(c.Create(t.Context(), crd)); err != nil {
			t.Fatal(err)
		}
	}
	serves(t, "http://"+probes+"/readyz", "ok")
	c.pool(t, "p", "192.0.2.0/24")
	c.holds(t, c.service(t, "web"), "192.0.2.0")
}
