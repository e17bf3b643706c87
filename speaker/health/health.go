// Package health answers health checks of this node: those of load balancers, on the healthCheckNodePort of a
// Service, and those of clouds, autoscalers and tests, on kube-proxy's ports and in its format.
package health

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/serve"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

// Config is what a Node works with.
type Config struct {
	Off  bool   // another proxy forwards, and answers
	Node string // our own node's name
	// ProxyAddress is where /healthz and /livez of the proxy are served, StatusAddress
	// where Status is. "": nowhere.
	ProxyAddress, StatusAddress string
	Status                      http.Handler
	// Failed is called when the healthCheckNodePort of a Service cannot be served, once
	// for each reason, by several goroutines.
	Failed  func(service view.Ref, port uint16, err error)
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Node answers for one node. Begin and Apply are for one goroutine, in turn.
type Node struct {
	config  Config
	proxy   *proxy
	latency *latency
	checks  *checks
	news    news
}

// New makes a node that knows nothing yet, and registers its metrics.
func New(c Config) *Node {
	if c.Off {
		return &Node{config: c}
	}
	p := newProxy()
	n := &Node{config: c, proxy: p, latency: newLatency(), checks: newChecks(c, func() bool { h, _ := p.health(); return h.Healthy })}
	c.Metrics.MustRegister(p.metrics()...)
	c.Metrics.MustRegister(n.latency.histogram, n.checks.failing())
	return n
}

// Run serves until ctx ends, and returns nil then. Nothing listens any more. An address that cannot be bound is
// no error: it is logged and tried again.
func (n *Node) Run(ctx context.Context) error {
	if n.config.Off {
		<-ctx.Done()
		return nil
	}
	var servers sync.WaitGroup
	for address, handler := range map[string]http.Handler{
		n.config.ProxyAddress: n.proxy.handler(), n.config.StatusAddress: n.config.Status,
	} {
		if address != "" {
			servers.Go(func() { serve.HTTP(ctx, address, handler, n.config.Log) })
		}
	}
	servers.Go(func() { follow(ctx, n.checks.relocate, n.config.Log) })
	<-ctx.Done()
	n.checks.close()
	servers.Wait()
	return nil
}

// Changed notes that the cluster has changed in a way that the kernel is to follow.
func (n *Node) Changed() {
	if !n.config.Off {
		n.proxy.changed()
	}
}

// Begin notes that the kernel is being brought to the newest snapshot of the cluster.
func (n *Node) Begin(c *view.Cluster) {
	if n.config.Off {
		return
	}
	n.proxy.begin(eligible(c.Nodes[n.config.Node]))
	n.news = n.news.in(c)
	n.latency.begin(c.Triggers, n.news)
}

// Apply takes in to what the kernel has been brought, what it lacks of that, and why.
func (n *Node) Apply(want desired.Node, missing outcome.Missing, err error) {
	if n.config.Off {
		return
	}
	behind, absent := outcome.Behind(missing, err), outcome.Absent(err)
	for _, family := range addr.Families() {
		switch {
		case absent[family]:
			n.proxy.absent(family)
		case !behind[family]:
			n.proxy.applied(family)
		}
	}
	for _, failed := range outcome.AllOf[*outcome.FamilyError](err) {
		if outcome.ReasonOf(failed.Err) == outcome.ReasonForwardingDisabled {
			n.proxy.overdue(failed.Family)
		}
	}
	n.latency.applied(missing, absent)
	n.checks.apply(want.Health, want.Forwarding.HealthPrefixes(), n.news, unserved(want.Forwarding, missing), absent)
}

// news are the Services that the last snapshot says something new about.
type news struct {
	seen     uint64 // revision of that snapshot, 0 if it had none
	all      bool   // nothing is known of what is new
	services map[view.Ref]struct{}
}

func (n news) in(c *view.Cluster) news {
	switch {
	case c.Revision != 0 && c.Revision == n.seen:
		return news{seen: c.Revision}
	case c.Since != 0 && c.Since == n.seen:
		return news{seen: c.Revision, services: c.Touched}
	default:
		return news{seen: c.Revision, all: true}
	}
}

// eligible reports whether load balancers ought to send new connections to a node
// (KEP-3836).
func eligible(own *view.Node) bool { return own != nil && !own.Deleting && !own.Condemned }

// Status returns the handler of what kube-proxy serves to its own node: /proxyMode,
// /healthz and /metrics.
func Status(mode string, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics)
	mux.HandleFunc("/proxyMode", text(mode))
	mux.HandleFunc("/healthz", text("ok"))
	return mux
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write([]byte(body))
	}
}
