package serve_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/serve"
	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// patience is more than what does happen takes on a busy machine.
const patience = time.Minute

// An address that is free again must be taken by nobody else meanwhile.
func TestMain(m *testing.M) { netlab.Isolated(m.Run) }

// log is what was logged so far.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) complaints() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), "level=ERROR")
}

func TestATakenAddressIsServedOnceItIsFree(t *testing.T) {
	var listen net.ListenConfig
	foreign, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	address := foreign.Addr().String()

	var logged log
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		serve.HTTP(ctx, address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "ours")
		}), slog.New(slog.NewTextHandler(&logged, nil)))
	}()
	for began := time.Now(); logged.complaints() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("did not complain of a taken address")
		}
	}
	for began := time.Now(); time.Since(began) < 2500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		select {
		case <-ended:
			t.Fatal("gave up on a taken address")
		default:
		}
	}
	if got := logged.complaints(); got != 1 {
		t.Errorf("complained %d times in several attempts, want once", got)
	}
	_ = foreign.Close()
	for began := time.Now(); get(t, address) != "ours"; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("a free address is not served")
		}
	}
	cancel()
	<-ended
	if get(t, address) != "" {
		t.Error("served on after the end")
	}
}

// get is what is served on the address, empty if nothing is.
func get(t *testing.T, address string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestBuildInfo(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(serve.BuildInfo("0.1.0"))
	answer := httptest.NewRecorder()
	serve.Metrics(registry).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if text := answer.Body.String(); !strings.Contains(text, `version="0.1.0"} 1`) {
		t.Errorf("metrics lack the version:\n%s", text)
	}
}

// A relay hands on what another program serves, and tells it nothing of the client.
func TestARelayKeepsTokensToItself(t *testing.T) {
	var got http.Header
	pulse := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		got = q.Header
		_, _ = io.WriteString(w, "metrics of "+q.URL.Path)
	}))
	relay := serve.Relay(pulse.Listener.Addr().String())
	ask := func() *httptest.ResponseRecorder {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics/pulse", http.NoBody)
		request.Header.Set("Authorization", "Bearer secret")
		request.Header.Set("Cookie", "secret")
		answer := httptest.NewRecorder()
		relay.ServeHTTP(answer, request)
		return answer
	}
	if answer := ask(); answer.Code != http.StatusOK || answer.Body.String() != "metrics of /metrics" {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	if got["Authorization"] != nil || got["Cookie"] != nil {
		t.Errorf("pulse is told %v", got)
	}
	pulse.Close()
	if answer := ask(); answer.Code != http.StatusBadGateway || !strings.Contains(answer.Body.String(), "no metrics at 127.0.0.1") {
		t.Errorf("without pulse: %d %s", answer.Code, answer.Body)
	}
}
