package serve_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/serve"
)

// pipes is a listener whose clients are in the same bubble.
type pipes struct {
	waiting chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.waiting:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects once it is accepted.
func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.waiting <- there
	return here
}

// served runs a test against a server that answers "ok" to all.
func served(t *testing.T, test func(t *testing.T, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{waiting: make(chan net.Conn), closed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s := serve.Server{Log: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "ok")
			})}
			_ = serve.On(s, ctx, p)
		}()
		test(t, p)
		cancel()
		<-ended
	})
}

// asks gets an answer over a connection that stays open.
func asks(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: node\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(response.Body); err != nil {
		t.Error(err)
	}
	_ = response.Body.Close()
}

// Who asks nothing is not kept for ever, at the start, in the middle of a request or after one.
func TestAClientThatIsSilentIsLeft(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, c net.Conn){
		"at the start": func(*testing.T, net.Conn) {},
		"in the middle": func(t *testing.T, c net.Conn) {
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\n"); err != nil {
				t.Fatal(err)
			}
		},
		"after a request": asks,
	} {
		t.Run(name, func(t *testing.T) {
			served(t, func(t *testing.T, p *pipes) {
				c := p.dial()
				defer c.Close()
				begin(t, c)
				if err := c.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, c); err != nil {
					t.Errorf("the connection is open after an hour: %v", err)
				}
			})
		})
	}
}

// Clients that keep their connections cost what so many of them cost, and no more, and keep nobody out:
// who has been silent for longest makes room.
func TestOnlySoManyAreServedAtATime(t *testing.T) {
	served(t, func(t *testing.T, p *pipes) {
		var all []net.Conn
		for range serve.Connections {
			c := p.dial()
			defer c.Close()
			asks(t, c)
			synctest.Wait() // the answer is out, and the connection idle
			all = append(all, c)
		}
		asks(t, all[0])
		for _, out := range []int{1, 2, 3} {
			c := p.dial()
			defer c.Close()
			asks(t, c)
			asks(t, all[0])
			synctest.Wait()
			if _, err := all[out].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("number %d, silent for longest, has %v", out, err)
			}
		}
		for _, c := range all[4:] {
			asks(t, c)
		}
	})
}

// slow is what takes long to gather: it has no metrics, and waits.
type slow struct{ begun, end chan struct{} }

func (slow) Describe(chan<- *prometheus.Desc) {}

func (s slow) Collect(chan<- prometheus.Metric) {
	s.begun <- struct{}{}
	<-s.end
}

// Who asks for metrics without end has them gathered a few times at once.
func TestMetricsAreGatheredForAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 100
		s := slow{begun: make(chan struct{}, many), end: make(chan struct{})}
		registry := prometheus.NewRegistry()
		registry.MustRegister(s)
		handler := serve.Metrics(registry)
		var clients sync.WaitGroup
		for range many {
			clients.Go(func() {
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
			})
		}
		synctest.Wait()
		if n := len(s.begun); n == 0 || n > 10 {
			t.Errorf("%d of %d have metrics gathered at a time", n, many)
		}
		close(s.end)
		clients.Wait()
	})
}
