// Package apiservers has the clients of an API server use another one of the same cluster while it does not answer.
package apiservers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

// patience is how long a connection to one server may take, TLS included, before the next server is asked.
const patience = 3 * time.Second

// returnAfter is how long a node asks another server than its first one at least, and twice that at most: nodes that have left a server go
// back to it, or those that have ended and come back would have no clients, and the others all. Watches stay until they end, after some minutes.
const returnAfter = 10 * time.Minute

// Servers are the API servers of a cluster, of which one is asked at a time. It collects which one.
type Servers struct {
	node           string
	log            *slog.Logger
	inUse, changes *prometheus.Desc

	mu      sync.Mutex
	given   []string // this and learned in the order of the node
	found   []netip.AddrPort
	learned []string
	asked   string    // the one that answered last
	changed int       // how often that has been another one
	back    time.Time // when the first one is tried again, while another one is asked
}

// New returns the servers at some addresses, each a host with a port. The node's name chooses in which order they are asked: when a server
// ends, its clients go to all others.
func New(node string, given []string, log *slog.Logger) *Servers {
	s := &Servers{
		node: node, log: log, given: ordered(node, given),
		inUse:   prometheus.NewDesc("fairlead_api_server_in_use", "Always 1, of the API server that is asked.", []string{"server"}, nil),
		changes: prometheus.NewDesc("fairlead_api_server_changes_total", "How often another API server was asked from then on.", nil, nil),
	}
	if len(given) > 0 {
		s.asked = s.given[0]
	}
	return s
}

// ordered returns servers in the order of a node: by a rendezvous hash.
func ordered(node string, servers []string) []string {
	weight := func(server string) []byte {
		sum := sha256.Sum256([]byte(node + " " + server))
		return sum[:]
	}
	return slices.SortedFunc(slices.Values(servers), func(a, b string) int { return bytes.Compare(weight(a), weight(b)) })
}

// Parse reads addresses that commas separate. The error names the one that is no host with a port.
func Parse(text string) (servers []string, err error) {
	for server := range strings.SplitSeq(text, ",") {
		if server = strings.TrimSpace(server); server == "" {
			continue
		}
		if host, port, err := net.SplitHostPort(server); err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("%q is no host with a port, such as 192.0.2.5:6443 or [2001:db8::5]:6443", server)
		}
		servers = append(servers, server)
	}
	return servers, nil
}

// Reach returns the config, or if several servers were given a copy of it for clients that ask one of them. A server needs a
// certificate for its own address, as if it were the only one.
func (s *Servers) Reach(config *rest.Config) *rest.Config {
	if len(s.given) < 2 {
		return config
	}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{servers: s, next: next} })
	return config
}

// Learn takes in which API servers the cluster says that it has. They are asked when none of those that were given answers.
func (s *Servers) Learn(found []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(found, s.found) {
		return
	}
	s.found = slices.Clone(found)
	var learned []string
	for _, a := range found {
		if server := a.String(); !slices.Contains(s.given, server) {
			learned = append(learned, server)
		}
	}
	s.learned = ordered(s.node, learned)
}

// inTurn returns all servers, from the one that answered last on, which is returned, too. A request that may fail at one of them goes to
// the first one of the node before, when that is to be tried again.
func (s *Servers) inTurn(mayFail bool) (all []string, asked string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all = slices.Concat(s.given, s.learned)
	i := slices.Index(all, s.asked)
	switch {
	case len(all) == 0:
		return nil, ""
	case i < 0: // it was learned, and is no more
		i, s.asked = 0, all[0]
	case i > 0 && mayFail && !time.Now().Before(s.back):
		s.stay()
		return slices.Concat(all[:1], all[i:], all[1:i]), s.asked
	}
	return slices.Concat(all[i:], all[:i]), s.asked
}

// stay has the first server not be tried for a while. The lock is held.
func (s *Servers) stay() { s.back = time.Now().Add(returnAfter + rand.N(returnAfter)) }

// moveOn has another server be asked from now on, "" for the next one, unless another one is already.
func (s *Servers) moveOn(from, to string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all := slices.Concat(s.given, s.learned); to == "" {
		to = all[(slices.Index(all, from)+1)%len(all)]
	}
	if s.asked != from || from == to {
		return
	}
	s.asked = to
	s.changed++
	s.stay()
	if why == nil {
		s.log.Info("the API server that this node prefers answers again", "server", to, "other", from)
		return
	}
	s.log.Warn("an API server does not answer, another one is asked", "server", from, "other", to, "error", why)
}

// Describe implements prometheus.Collector.
func (s *Servers) Describe(to chan<- *prometheus.Desc) { to <- s.inUse; to <- s.changes }

// Collect implements prometheus.Collector. There is nothing to collect if there is no choice.
func (s *Servers) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.given) < 2 {
		return
	}
	to <- prometheus.MustNewConstMetric(s.inUse, prometheus.GaugeValue, 1, s.asked)
	to <- prometheus.MustNewConstMetric(s.changes, prometheus.CounterValue, float64(s.changed))
}

// errNoConnection is of a server to which there is no connection in time.
var errNoConnection = fmt.Errorf("no connection within %v", patience)

// transport sends each request to one of the servers.
type transport struct {
	servers *Servers
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper. A request goes to one server after another until one answers it. One that changes something and
// was taken without an answer fails, since it may have had its effect, and the next request goes to another server.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	all, asked := t.servers.inTurn(r.Method == http.MethodGet)
	if len(all) < 2 {
		return t.next.RoundTrip(r)
	}
	var errs []error
	for i, server := range all {
		response, err := t.ask(r, server)
		if err == nil && i < len(all)-1 && r.Method == http.MethodGet && unable(response) {
			err = errors.New(response.Status)
			_ = response.Body.Close() // it is not read
		}
		if err == nil {
			t.servers.moveOn(asked, server, errors.Join(errs...))
			return response, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", server, err))
		if r.Context().Err() != nil {
			break
		}
		if again := unsent(err) || r.Method == http.MethodGet; !again || r.Body != nil && r.GetBody == nil {
			t.servers.moveOn(asked, all[(i+1)%len(all)], errs[i])
			break
		}
	}
	return nil, errors.Join(errs...)
}

// ask sends a request to one server, with a copy of its body.
func (t *transport) ask(r *http.Request, server string) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	late := time.AfterFunc(patience, func() { cancel(errNoConnection) })
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { late.Stop() }})
	one := r.Clone(ctx)
	one.URL.Host, one.Host = server, ""
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			cancel(nil)
			return nil, err
		}
		one.Body = body
	}
	response, err := t.next.RoundTrip(one)
	if err != nil {
		late.Stop()
		if cause := context.Cause(ctx); r.Context().Err() == nil && errors.Is(cause, errNoConnection) {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, free: func() { cancel(nil) }, failed: func(err error) {
		if r.Context().Err() == nil {
			t.servers.moveOn(server, "", err)
		}
	}}
	return response, nil
}

// unable tells whether a server, or a proxy before it, says that it cannot serve, as one without its etcd does.
func unable(r *http.Response) bool {
	return r.StatusCode == http.StatusBadGateway || r.StatusCode == http.StatusServiceUnavailable || r.StatusCode == http.StatusGatewayTimeout
}

// unsent tells whether a request has reached no server for certain.
func unsent(err error) bool {
	if errors.Is(err, errNoConnection) {
		return true
	}
	if dial, is := errors.AsType[*net.OpError](err); is && dial.Op == "dial" {
		return true
	}
	_, is := errors.AsType[*tls.CertificateVerificationError](err)
	return is
}

// body frees what belongs to a request once its answer has been read. An answer that breaks off, a watch above all, tells that its server
// has ended or stands still: what is asked anew need not wait for it.
type body struct {
	io.ReadCloser
	free   func()
	failed func(error)
	closed atomic.Bool
}

// Read implements io.Reader.
func (b *body) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if err != nil && !errors.Is(err, io.EOF) && !b.closed.Load() {
		b.failed(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.closed.Store(true)
	defer b.free()
	return b.ReadCloser.Close()
}
