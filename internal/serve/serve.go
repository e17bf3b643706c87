// Package serve serves HTTP on addresses that another program may have: it keeps trying
// until it gets them. Metrics and health are only for observers, so the rest of the program
// goes on without them.
package serve

import (
	"container/list"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// retryAfter is the pause before an address that cannot be bound is tried
	// again.
	retryAfter = time.Second
	// headersWithin and requestWithin bound how long a client may take to ask, answerWithin how long
	// until it has taken the answer.
	headersWithin = 5 * time.Second
	requestWithin = 10 * time.Second
	answerWithin  = 30 * time.Second
	// idleWithin is how long a connection stays open between two requests, which is longer than
	// observers usually wait.
	idleWithin = 2 * time.Minute
	// connections is how many clients may be connected at a time. Any host that reaches the node may
	// connect, and what a client costs is lacking elsewhere.
	connections = 256
	// scrapes is how many clients may have metrics gathered at a time.
	scrapes = 4
)

// HTTP serves on address, of both families, until ctx ends. An address that cannot
// be bound is told once and tried again.
func HTTP(ctx context.Context, address string, handler http.Handler, log *slog.Logger) {
	HTTPS(ctx, address, nil, handler, log)
}

// HTTPS does the same over TLS, or without it if secure is nil.
func HTTPS(ctx context.Context, address string, secure *tls.Config, handler http.Handler, log *slog.Logger) {
	Server{Network: "tcp", Address: address, TLS: secure, Handler: handler, Log: log, Told: func(err error) {
		if err == nil {
			log.Info("serving metrics and health", "address", address)
			return
		}
		log.Error("metrics and health cannot be served; trying again: free the port, or choose another",
			"address", address, "error", err)
	}}.Run(ctx)
}

// BuildInfo is a gauge that is always 1 and has the version of the program as a label.
func BuildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_build_info", Help: "Always 1; the labels tell what runs.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

// Metrics serves what is gathered, to a few at a time: anybody may ask, and gathering takes the time of
// what is observed.
func Metrics(from prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes})
}

// Server serves HTTP on one address.
type Server struct {
	Network string // "tcp4" or "tcp6" for one family, "tcp" for both
	Address string
	TLS     *tls.Config // nil: without
	Handler http.Handler
	Log     *slog.Logger
	// Control prepares the socket before it is bound, as in net.ListenConfig; nil: not at all.
	Control func(network, address string, socket syscall.RawConn) error
	// Told is told nil when the address is served, or else why it cannot be, at first
	// and whenever that changes.
	Told func(error)
}

// Run serves until ctx ends. When it returns nothing listens any more, and every
// connection is closed.
func (s Server) Run(ctx context.Context) {
	told := "nothing yet"
	tell := func(err error) {
		if text := fmt.Sprint(err); text != told {
			told = text
			s.Told(err)
		}
	}
	for {
		err := s.serve(ctx, func() { tell(nil) })
		if ctx.Err() != nil {
			return
		}
		tell(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryAfter):
		}
	}
}

// serve serves until ctx ends or the address can no longer be served.
func (s Server) serve(ctx context.Context, listening func()) error {
	config := net.ListenConfig{Control: s.Control}
	listener, err := config.Listen(ctx, s.Network, s.Address)
	if err != nil {
		return err
	}
	if s.TLS != nil {
		listener = tls.NewListener(listener, s.TLS)
	}
	listening()
	return s.on(ctx, listener)
}

// on serves connections to the listener, which it closes in the end.
func (s Server) on(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s.Handler, ReadHeaderTimeout: headersWithin, ReadTimeout: requestWithin,
		WriteTimeout: answerWithin, IdleTimeout: idleWithin,
		ErrorLog:  slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		ConnState: newGuests(connections).changed,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	err := server.Serve(listener) // never nil
	stop()
	_ = server.Close() // what was accepted while the first Close was at work
	return err
}

// guests are the connections of a server, as many as there is room for. A new one takes the place of the
// one that has been idle for longest. Were new ones to wait, a few silent clients would keep a load
// balancer from hearing that the node is well.
type guests struct {
	room int

	mu    sync.Mutex // guards what follows
	of    map[net.Conn]*list.Element
	order list.List // of net.Conn, the last active one at the end
}

func newGuests(room int) *guests { return &guests{room: room, of: map[net.Conn]*list.Element{}} }

// changed takes in what a connection does, as http.Server.ConnState tells it.
func (g *guests) changed(c net.Conn, state http.ConnState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, known := g.of[c]
	switch {
	case state == http.StateNew:
		if g.order.Len() >= g.room {
			first := g.order.Front()
			g.leave(first)
			_ = first.Value.(net.Conn).Close() // its server sees that, and says so
		}
		g.of[c] = g.order.PushBack(c)
	case !known: // it had to leave
	case state == http.StateClosed || state == http.StateHijacked:
		g.leave(at)
	default:
		g.order.MoveToBack(at)
	}
}

// leave needs mu.
func (g *guests) leave(at *list.Element) {
	delete(g.of, at.Value.(net.Conn))
	g.order.Remove(at)
}

// Probes returns the handler of the paths of metrics, of /healthz and /readyz. ready returns an error that says what the process
// waits for, nil once it is ready.
func Probes(metrics map[string]http.Handler, ready func() error) http.Handler {
	mux := http.NewServeMux()
	for path, handler := range metrics {
		mux.Handle(path, handler)
	}
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}

// Relay serves the metrics that another program on this machine serves at an address. That program learns nothing of
// the client, and least of all its token: another one may have the port while it is away.
func Relay(address string) http.Handler {
	return &httputil.ReverseProxy{
		Transport: &http.Transport{ResponseHeaderTimeout: requestWithin, MaxConnsPerHost: scrapes},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = &url.URL{Scheme: "http", Host: address, Path: "/metrics"}
			r.Out.Header = http.Header{"Accept": r.In.Header["Accept"], "Accept-Encoding": r.In.Header["Accept-Encoding"]}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("no metrics at %s: %v", address, err), http.StatusBadGateway)
		},
	}
}
