package statuswriter

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/run"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/pulse"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/report"
)

// doubtQPS and doubtBurst bound the requests about doubts, which have a client of their own. One wrong
// setting may concern thousands of addresses, and everything else goes first.
const (
	doubtQPS   = 5
	doubtBurst = 10
)

// Objects writes all status objects of a node. It implements report.Objects.
type Objects struct {
	api        client.WithWatch
	log        *slog.Logger
	sessions   *Sessions
	addresses  *Addresses
	doubts     *Doubts
	forwarding *Forwardings
	stale      *StaleMarker
}

// New makes the writers of a node. Nothing is sent before Run. The error is that of a configuration by which
// no client can be made.
func New(node string, config *rest.Config, log *slog.Logger) (*Objects, error) {
	api, err := newClient(config)
	if err != nil {
		return nil, err
	}
	slow := rest.CopyConfig(config)
	slow.QPS, slow.Burst = doubtQPS, doubtBurst
	doubts, err := newClient(slow)
	if err != nil {
		return nil, err
	}
	return &Objects{
		api: api, log: log,
		sessions:   NewSessions(node, api, log),
		addresses:  NewAddresses(node, api, log),
		doubts:     NewDoubts(node, doubts, log),
		forwarding: NewForwardings(node, api, log),
		stale:      NewStaleMarker(node, api, log),
	}, nil
}

func newClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("prepare the scheme: %w", err)
	}
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("prepare the client of the status objects: %w", err)
	}
	return api, nil
}

// writer is a Writer of any kind.
type writer interface {
	run.Task
	Follow(ctx context.Context, api Watcher) error
	Resync()
	Remove(ctx context.Context) error
}

func (o *Objects) writers() []writer {
	return []writer{o.sessions, o.addresses, o.doubts, o.forwarding}
}

// String names the task.
func (*Objects) String() string { return "writing status objects" }

// Ready returns nil, and never an error.
func (*Objects) Ready() error { return nil }

// Run writes until ctx ends, and returns nil then, or the error of a writer that ended by itself.
func (o *Objects) Run(ctx context.Context) error {
	tasks := []run.Task{run.Func("marking objects of dead nodes", o.stale.Run)}
	for _, w := range o.writers() {
		tasks = append(tasks, w, run.Func("watch for "+w.String(), func(ctx context.Context) error { return w.Follow(ctx, o.api) }))
	}
	return run.All(ctx, tasks...)
}

// Resync has all objects read again that other nodes mark as stale when they do not hear this one.
func (o *Objects) Resync() {
	for _, w := range o.writers() {
		w.Resync()
	}
}

// Remove deletes the objects of a node that goes for good, once Run has returned. It logs errors.
func (o *Objects) Remove(ctx context.Context) {
	for _, w := range o.writers() {
		if err := w.Remove(ctx); err != nil {
			o.log.Warn("objects of this node stay behind", "error", err)
		}
	}
}

// Sessions implements report.Objects.
func (o *Objects) Sessions(uid types.UID, sessions map[string]bgp.State, paths map[string]bfd.Status) {
	o.sessions.Set(uid, sessions, paths)
}

// Addresses implements report.Objects.
func (o *Objects) Addresses(uid types.UID, addresses map[netip.Addr]report.Address) {
	o.addresses.Set(uid, addresses)
}

// Doubts implements report.Objects.
func (o *Objects) Doubts(doubts map[netip.Addr]pulse.Doubt) { o.doubts.Set(doubts) }

// Forwarding implements report.Objects.
func (o *Objects) Forwarding(uid types.UID, f report.Forwarding) { o.forwarding.Set(uid, f) }

// MarkStale implements report.Objects.
func (o *Objects) MarkStale(nodes map[string]time.Time) { o.stale.MarkStale(nodes) }

var _ report.Objects = (*Objects)(nil)
