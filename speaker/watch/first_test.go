package watch_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/watch"
)

// held are the requests of a client, of which those that read one resource wait.
type held struct {
	http.RoundTripper
	resource string
	until    <-chan struct{}
}

func (h held) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/"+h.resource) {
		select {
		case <-h.until:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return h.RoundTripper.RoundTrip(r)
}

// unanswered are the first requests of a client, which nobody answers.
type unanswered struct {
	http.RoundTripper
	left *atomic.Int32
}

func (u unanswered) RoundTrip(r *http.Request) (*http.Response, error) {
	if u.left.Add(-1) < 0 {
		return u.RoundTripper.RoundTrip(r)
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}
}

// Who installs the chart without kube-proxy and without saying where the API server is reads what
// to do about it, in the log and in why the speaker is not ready; and reads it once.
func testAnAPIServerThatDoesNotAnswerIsTold(t *testing.T, reached *apiserver.Server) {
	server := *reached
	var left atomic.Int32
	left.Store(12)
	server.Config = rest.CopyConfig(server.Config)
	server.Config.Wrap(func(to http.RoundTripper) http.RoundTripper { return unanswered{to, &left} })
	told, log := make(chan string, 100), make(testlog.Lines, 100)
	o := observeAs(t, &server, watch.Config{
		Log: slog.New(slog.NewTextHandler(log, nil)), Unreached: func(why string) { told <- why },
	})
	o.first()
	if len(told) != 2 {
		t.Fatalf("of an API server that does not answer, and then does, is told %d times, want twice", len(told))
	}
	why, line := <-told, <-log
	for _, text := range []string{server.Config.Host, syscall.EHOSTUNREACH.Error(), "apiServer.host", "ClusterIP"} {
		if !strings.Contains(why, text) {
			t.Errorf("%q is not in %q", text, why)
		}
		if !strings.Contains(line, text) {
			t.Errorf("%q is not in the line of the log %q", text, line)
		}
	}
	if why := <-told; why != "" {
		t.Errorf("of an API server that answers is told %q", why)
	}
	if line := <-log; strings.Contains(line, "cannot be asked") {
		t.Errorf("what was logged is logged again: %q", line)
	}
}

// The first snapshot is whole, whichever kind is read last: who forwards by less would take
// rules away that an earlier speaker has left, and Services would fail until the rest is read.
func testTheFirstSnapshotIsWhole(t *testing.T, server *apiserver.Server) {
	many := map[string]int{"Service": 300, "EndpointSlice": 300, "Node": 20}
	api, err := client.New(server.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all []client.Object
	for i := range many["Service"] {
		name := fmt.Sprintf("s%03d", i)
		all = append(all, &corev1.Service{
			ObjectMeta: meta("default", name, nil), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}, slice(name, name, fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)))
	}
	for i := range many["Node"] {
		all = append(all, &corev1.Node{ObjectMeta: meta("", fmt.Sprint("node", i), nil)})
	}
	for _, object := range all {
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for last, resource := range map[string]string{"Service": "services", "EndpointSlice": "endpointslices", "Node": "nodes"} {
		t.Run(last, func(t *testing.T) {
			release := make(chan struct{})
			slow := *server
			slow.Config = rest.CopyConfig(server.Config)
			slow.Config.Wrap(func(to http.RoundTripper) http.RoundTripper { return held{to, resource, release} })
			o := observeOn(t, &slow, slog.New(slog.DiscardHandler))
			o.reads(many, last)
			if c := o.Snapshot(); c != nil {
				t.Errorf("there is a snapshot before any %s is read, of %d Services and %d Nodes", last, len(c.Services), len(c.Nodes))
			}
			close(release)
			c := o.first()
			for i := range many["Service"] {
				ref := view.Ref{Namespace: "default", Name: fmt.Sprintf("s%03d", i)}
				if c.Services[ref] == nil || len(c.Endpoints.Of(ref)) != 1 {
					t.Fatalf("the first snapshot has %d Services, and of %s the endpoints %v", len(c.Services), ref, c.Endpoints.Of(ref))
				}
			}
			if len(c.Nodes) != many["Node"] {
				t.Errorf("the first snapshot has %d of %d Nodes", len(c.Nodes), many["Node"])
			}
		})
	}
}

// reads waits until so many objects of each kind but one are read.
func (o observed) reads(many map[string]int, but string) {
	o.Helper()
	read := map[string]int{}
	limit := time.After(patience)
	for kind, n := range many {
		for kind != but && read[kind] < n {
			select {
			case noted := <-o.noted:
				read[noted]++
			case <-limit:
				o.Fatalf("read are %v of %v", read, many)
			}
		}
	}
}

// first is the first snapshot that there is. It is asked for all the time, and not at
// wake-ups alone.
func (o observed) first() *view.Cluster {
	o.Helper()
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for limit := time.Now().Add(patience); time.Now().Before(limit); <-tick.C {
		if c := o.Snapshot(); c != nil {
			return c
		}
	}
	o.Fatal("there is never a snapshot")
	return nil
}
