package health

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

// unserved returns the Services without an endpoint in the kernel, whatever ready ones there are: a load
// balancer must not send clients to where they are dropped.
func unserved(want desired.Forwarding, missing outcome.Missing) map[view.EndpointsOf]bool {
	unserved := map[view.EndpointsOf]bool{}
	for key, in := range missing {
		if _, wanted := want.Ports[key]; !wanted {
			continue // no client is to be sent there
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
	own     func() ([]netip.Addr, error) // the addresses of this node

	mu       sync.Mutex
	closed   bool
	servers  map[view.EndpointsOf]*check
	unserved map[view.EndpointsOf]bool // as of the last pass
	absent   map[addr.Family]bool      // families that this host has not, as of the last pass
	prefixes []netip.Prefix            // within which it answers, as of the last pass
	addrs    []netip.Addr              // on which it does; see desired.HealthAddrs
	unread   string                    // why the addresses of this node are not known, as logged
}

// check is what answers for one Service in one family.
type check struct {
	of   view.EndpointsOf
	port uint16
	// alone: the Service has no other family, and the node's addresses of both answer.
	// A load balancer knows the node, and may probe any of its addresses.
	alone     bool
	ready     atomic.Int64 // local ready endpoints
	listening map[binding]*listening
}

func newChecks(c Config, healthy func() bool) *checks {
	return &checks{healthy: healthy, failed: c.Failed, log: c.Log, own: ownAddresses, servers: map[view.EndpointsOf]*check{}}
}

// apply makes the servers as wanted, of the Services that there is news of and of those that are or were
// unserved. They answer on this node's addresses within the prefixes. In a family that the host lacks, nothing
// can listen.
func (c *checks) apply(wanted map[view.Ref]desired.HealthCheck, within []netip.Prefix, news news, unserved map[view.EndpointsOf]bool, absent map[addr.Family]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	before := c.unserved
	c.unserved = unserved
	moved := false
	if !slices.Equal(within, c.prefixes) || !news.all && len(news.services) == 0 { // a notice may have been lost
		c.prefixes = within
		moved = c.locate()
	}
	if !maps.Equal(absent, c.absent) {
		c.absent, news.all = absent, true
	}
	touched := map[view.EndpointsOf]*check{}
	for ref := range c.concerned(wanted, news, before) {
		check := wanted[ref]
		for _, family := range addr.Families() {
			of := view.EndpointsOf{Service: ref, Family: family}
			ready, has := check.Ready[family]
			if c.unserved[of] {
				ready = 0
			}
			alone := len(check.Ready) == 1
			if server := c.said(of, check.Port, alone, ready, has && (alone || !absent[family])); server != nil {
				touched[of] = server
			}
		}
	}
	if moved {
		maps.Copy(touched, c.servers)
	}
	c.listen(touched)
}

// said sets the answer for a Service in a family, if there is to be one. It returns its check; nil if there
// neither is nor was one.
func (c *checks) said(of view.EndpointsOf, port uint16, alone bool, ready int, has bool) *check {
	server := c.servers[of]
	switch {
	case !has && server == nil:
		return nil
	case !has:
		delete(c.servers, of)
		server.port = 0
		return server
	case server == nil:
		server = &check{of: of, listening: map[binding]*listening{}}
		c.servers[of] = server
	}
	server.port, server.alone = port, alone
	server.ready.Store(int64(ready))
	return server
}

// concerned returns the Services with answers that may have changed.
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
	c.apply(nil, nil, news{all: true}, nil, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// answer answers whether to send clients of a Service here, in the very bytes of kube-proxy.
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

func (c *checks) failing() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_health_check_ports_failing",
		Help: "healthCheckNodePorts that cannot be served on this node, or not on all of its addresses that answer, by family counted apart.",
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		failing := 0
		for _, server := range c.servers {
			if server.failing() {
				failing++
			}
		}
		return float64(failing)
	})
}
