package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// relay stands between one controller and the API server. It can cut the two apart, and
// do something at a write of a Service's status.
type relay struct {
	*httptest.Server
	forward *httputil.ReverseProxy
	leaders *leaders

	mu     sync.Mutex
	cut    context.CancelFunc // ends what is under way; nil while cut
	whole  context.Context
	mended chan struct{} // closed when whole
	trap   *trap
}

// trap is what becomes of the next write of a Service's status, and then of what sent it.
type trap struct {
	spring func()
	fate   fate
	sprung chan struct{}
}

// fate is what becomes of a write.
type fate string

const (
	lost     fate = "lost"     // it never reaches the API server
	landed   fate = "landed"   // it does, but nobody learns it
	belated  fate = "belated"  // it does after whoever sent it is gone
	answered fate = "answered" // nothing is wrong with it
)

// leaders remembers who leads: whose relay passed the last write of the lease that the
// API server took. It finds who writes without leading.
type leaders struct {
	mu      sync.Mutex
	current *relay
	changes int
	writes  int // of statuses of Services
	since   time.Time
	faults  []string // writes of who did not lead
}

func (l *leaders) lead(r *relay) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != r {
		l.current, l.since = r, time.Now()
		l.changes++
	}
}

func (l *leaders) write(r *relay, path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
	if l.current != r {
		l.faults = append(l.faults, fmt.Sprintf("%s wrote %s %v after another one began to lead", r.URL, path, time.Since(l.since)))
	}
}

func (l *leaders) leader() *relay {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// enough tells whether so many led and wrote that it proves something.
func (l *leaders) enough() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changes >= 3 && l.writes >= 10
}

func newRelay(t *testing.T, config *rest.Config, who *leaders) *relay {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{leaders: who, mended: make(chan struct{})}
	r.forward = &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	r.mend()
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.mend()
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

// mend lets requests through again.
func (r *relay) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut == nil {
		r.whole, r.cut = context.WithCancel(context.Background())
		close(r.mended)
	}
}

// sever breaks what is under way, and lets nothing through until mended.
func (r *relay) sever() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut != nil {
		r.cut()
		r.cut, r.mended = nil, make(chan struct{})
	}
}

// set lays a trap for the next write of a Service's status.
func (r *relay) set(f fate, spring func()) *trap {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trap = &trap{spring: spring, fate: f, sprung: make(chan struct{})}
	return r.trap
}

// disarm takes the trap away.
func (r *relay) disarm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trap = nil
}

func (r *relay) state() (whole context.Context, mended chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.whole, r.mended
}

func (r *relay) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	whole, mended := r.state()
	if whole.Err() != nil { // cut: nobody answers
		select {
		case <-request.Context().Done():
		case <-mended:
		}
		panic(http.ErrAbortHandler)
	}
	ctx, cancel := context.WithCancel(request.Context())
	defer cancel()
	defer context.AfterFunc(whole, cancel)()
	request = request.WithContext(ctx)
	switch path := request.URL.Path; {
	case request.Method == http.MethodPatch && strings.Contains(path, "/services/") && strings.HasSuffix(path, "/status"):
		r.leaders.write(r, path)
		r.status(w, request)
	case request.Method != http.MethodGet && strings.Contains(path, "/leases"):
		r.lease(w, request)
	default:
		r.forward.ServeHTTP(w, request)
	}
}

// status passes a write of a Service's status, or springs the trap.
func (r *relay) status(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	t := r.trap
	r.trap = nil
	r.mu.Unlock()
	if t == nil {
		r.forward.ServeHTTP(w, request)
		return
	}
	defer close(t.sprung)
	body, err := io.ReadAll(request.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	late := request.Clone(context.WithoutCancel(request.Context()))
	late.Body = io.NopCloser(bytes.NewReader(body))
	switch t.fate {
	case lost:
		t.spring()
	case landed:
		r.forward.ServeHTTP(httptest.NewRecorder(), late)
		t.spring()
	case belated:
		t.spring()
		r.forward.ServeHTTP(httptest.NewRecorder(), late)
	case answered:
		r.forward.ServeHTTP(w, late)
		t.spring()
		return
	}
	panic(http.ErrAbortHandler)
}

// lease passes a write of the lease, and learns who holds it.
func (r *relay) lease(w http.ResponseWriter, request *http.Request) {
	answer := httptest.NewRecorder()
	r.forward.ServeHTTP(answer, request)
	if answer.Code < http.StatusMultipleChoices {
		r.leaders.lead(r)
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = answer.Body.WriteTo(w)
}
