package health

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/serve"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// answer is what is said on one healthCheckNodePort in one family.
type answer struct {
	port  uint16
	alone bool
	ready int // local ready endpoints
}

// unserved are the endpoints that the kernel sends nobody to, whatever ready ones there
// are: a load balancer must not send clients to where they are dropped.
func unserved(want desired.Forwarding, missing desired.Missing) map[view.EndpointsOf]bool {
	unserved := map[view.EndpointsOf]bool{}
	for key, in := range missing {
		if _, wanted := want.Ports[key]; !wanted {
			continue // nobody is to be sent there
		}
		serving := in.Cluster
		if in.ExternalLocal {
			serving = in.Local
		}
		if len(serving) == 0 {
			unserved[view.EndpointsOf{Service: key.Service, Family: key.Family}] = true
		}
	}
	return unserved
}

// checks serves the healthCheckNodePorts.
type checks struct {
	healthy func() bool // the proxy is
	failed  func(view.Ref, uint16, error)
	log     *slog.Logger

	mu       sync.Mutex
	closed   bool
	servers  map[view.EndpointsOf]*check
	unserved map[view.EndpointsOf]bool // as of the last pass
}

// check is one server.
type check struct {
	of   view.EndpointsOf
	port uint16
	// alone: the Service has no other family, and the node's addresses of both answer.
	// Who asks goes by the node, and may take any of its addresses.
	alone   bool
	ready   atomic.Int64
	failing atomic.Bool
	stop    func() // and waits until nothing listens
}

func newChecks(c Config, healthy func() bool) *checks {
	return &checks{healthy: healthy, failed: c.Failed, log: c.Log, servers: map[view.EndpointsOf]*check{}}
}

// apply makes the servers as wanted, of the Services that there is news of and of those
// that the kernel sends nobody to, or sent. Servers that go are gone before those that come are
// begun, since ports move from Service to Service.
func (c *checks) apply(wanted map[view.Ref]desired.HealthCheck, news news, unserved map[view.EndpointsOf]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	before := c.unserved
	c.unserved = unserved
	say := map[view.EndpointsOf]answer{}
	for ref := range c.concerned(wanted, news, before) {
		check := wanted[ref]
		for _, family := range addr.Families() {
			of := view.EndpointsOf{Service: ref, Family: family}
			ready, has := check.Ready[family]
			alone := len(check.Ready) == 1
			if server := c.servers[of]; server != nil && (!has || server.port != check.Port || server.alone != alone) {
				server.stop()
				delete(c.servers, of)
			}
			if c.unserved[of] {
				ready = 0
			}
			if has {
				say[of] = answer{check.Port, alone, ready}
			}
		}
	}
	for of, a := range say {
		server := c.servers[of]
		if server == nil {
			server = &check{of: of, port: a.port, alone: a.alone}
			c.servers[of] = server
			server.ready.Store(int64(a.ready))
			c.start(server)
		}
		server.ready.Store(int64(a.ready))
	}
}

// concerned are the Services whose answers may be others than before.
func (c *checks) concerned(wanted map[view.Ref]desired.HealthCheck, news news, before map[view.EndpointsOf]bool) map[view.Ref]struct{} {
	refs := map[view.Ref]struct{}{}
	if news.all {
		for ref := range wanted {
			refs[ref] = struct{}{}
		}
		for of := range c.servers {
			refs[of.Service] = struct{}{}
		}
	}
	for ref := range news.services {
		refs[ref] = struct{}{}
	}
	for of := range before {
		refs[of.Service] = struct{}{}
	}
	for of := range c.unserved {
		refs[of.Service] = struct{}{}
	}
	return refs
}

// close ends all servers for ever.
func (c *checks) close() {
	c.apply(nil, news{all: true}, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// start serves a port. When it returns the port is served, or has been told of.
func (c *checks) start(s *check) {
	network, host := "tcp4", "0.0.0.0"
	switch {
	case s.alone:
		network, host = "tcp", "" // both families, or the one that the kernel has
	case s.of.Family == addr.IPv6:
		network, host = "tcp6", "::"
	}
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	server := serve.Server{
		Network: network, Address: net.JoinHostPort(host, strconv.Itoa(int(s.port))), Log: c.log,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w, s) }),
		Told: func(err error) {
			c.tell(s, err)
			begin()
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	s.stop = func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		server.Run(ctx)
	}()
	<-begun
}

// tell tells whether a port is served, or why not.
func (c *checks) tell(s *check, err error) {
	failed := s.failing.Swap(err != nil)
	if err == nil {
		if failed {
			c.log.Info("a healthCheckNodePort is served after all", "service", s.of.Service.String(), "family", s.of.Family.String(), "port", s.port)
		}
		return
	}
	c.log.Error("a healthCheckNodePort cannot be served; trying again: free the port on this node, or choose another in spec.healthCheckNodePort",
		"service", s.of.Service.String(), "family", s.of.Family.String(), "port", s.port, "error", err)
	c.failed(s.of.Service, s.port, err)
}

// answer says whether to send clients of a Service here, in the very bytes of kube-proxy.
func (c *checks) answer(w http.ResponseWriter, s *check) {
	ready, healthy := s.ready.Load(), c.healthy()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(ready, 10))
	if ready == 0 || !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintf(w, answerFormat, s.of.Service.Namespace, s.of.Service.Name, ready, healthy)
}

const answerFormat = `{
	"service": {
		"namespace": %q,
		"name": %q
	},
	"localEndpoints": %d,
	"serviceProxyHealthy": %v
}`

// failing counts the ports that cannot be served.
func (c *checks) failing() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_health_check_ports_failing",
		Help: "healthCheckNodePorts that cannot be served on this node, by family counted apart.",
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		failing := 0
		for _, server := range c.servers {
			if server.failing.Load() {
				failing++
			}
		}
		return float64(failing)
	})
}
