// Package serve serves HTTP on addresses that another program may have: it keeps trying
// until it gets them. Metrics and health are only for observers, so the rest of the program
// goes on without them.
package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
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
