// Package apiservers has the clients of an API server use another one of the same cluster while it does not answer.
package apiservers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// patience is how long a connection to one server may take, TLS included, before the next server is asked.
const patience = 3 * time.Second

// Servers are the API servers of a cluster, of which one is asked at a time.
type Servers struct {
	log *slog.Logger

	mu      sync.Mutex
	given   []string
	learned []string
	asked   string // the one that answered last
}

// New returns the servers at some addresses, each a host with a port. A node begins with one that its name chooses: when a server ends,
// its clients go to all others.
func New(node string, given []string, log *slog.Logger) *Servers {
	s := &Servers{given: slices.Clone(given), log: log}
	if len(given) > 0 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(node)) // never fails
		s.asked = given[h.Sum32()%uint32(len(given))]
	}
	return s
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
	s.learned = nil
	for _, a := range found {
		if server := a.String(); !slices.Contains(s.given, server) {
			s.learned = append(s.learned, server)
		}
	}
}

// inTurn returns all servers, from the one that answered last on.
func (s *Servers) inTurn() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Concat(s.given, s.learned)
	i := max(slices.Index(all, s.asked), 0)
	return slices.Concat(all[i:], all[:i])
}

// moveOn has another server be asked from now on, unless another one is already.
func (s *Servers) moveOn(from, to string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked != from || from == to {
		return
	}
	s.asked = to
	s.log.Warn("an API server does not answer, another one is asked", "server", from, "other", to, "error", why)
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
	all := t.servers.inTurn()
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
			if i > 0 {
				t.servers.moveOn(all[0], server, errors.Join(errs...))
			}
			return response, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", server, err))
		if r.Context().Err() != nil {
			break
		}
		if again := unsent(err) || r.Method == http.MethodGet; !again || r.Body != nil && r.GetBody == nil {
			t.servers.moveOn(all[0], all[(i+1)%len(all)], errs[i])
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
	response.Body = &body{response.Body, func() { cancel(nil) }}
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

// body frees what belongs to a request once its answer has been read.
type body struct {
	io.ReadCloser
	free func()
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.free()
	return b.ReadCloser.Close()
}
