package statuswriter

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/run"
	"fairlead.dev/fairlead/speaker/report"
)

// doubtQPS and doubtBurst bound the requests about doubts, which have a client of their own. One wrong
// setting may concern thousands of addresses, and everything else goes first.
const (
	doubtQPS   = 5
	doubtBurst = 10
)

// answerIn is how long the answer to a request is waited for, other than to a watch. One that never comes must not keep
// the state of all sessions from being told.
const answerIn = 10 * time.Second

// Objects writes all status objects of a node. It implements report.Objects.
type Objects struct {
	node       string
	api        Watcher
	log        *slog.Logger
	sessions   *Writer[*v1beta1.BGPSession]
	addresses  *Writer[*v1beta1.L2Address]
	doubts     *Writer[*v1beta1.L2Address]
	forwarding *Writer[*v1beta1.NodeForwarding]
	stale      *StaleMarker
}

// New makes the writers of a node. Nothing is sent before Run. The error is that of a configuration by which
// no client can be made.
func New(node string, config *rest.Config, log *slog.Logger) (*Objects, error) {
	watches, err := newClient(config)
	if err != nil {
		return nil, err
	}
	bounded := rest.CopyConfig(config)
	bounded.Timeout = answerIn
	api, err := newClient(bounded)
	if err != nil {
		return nil, err
	}
	bounded.QPS, bounded.Burst = doubtQPS, doubtBurst
	doubts, err := newClient(bounded)
	if err != nil {
		return nil, err
	}
	o := newObjects(node, api, doubts, log)
	o.api = watches
	return o, nil
}

// newObjects makes the writers of a node, those of doubts with a client of their own.
func newObjects(node string, api, doubts client.Client, log *slog.Logger) *Objects {
	session := sessionKind{private[*v1beta1.BGPSession]{api, "BGPSession", withSessionStatus}, node}
	forwarding := forwardingKind{private[*v1beta1.NodeForwarding]{api, "NodeForwarding", withForwardingStatus}, node}
	return &Objects{
		node: node, log: log,
		sessions:   newWriter(session, api, "BGPSession", log),
		addresses:  newWriter(addressKind{node, api}, api, "L2Address", log),
		doubts:     newWriter(doubtKind{node, doubts}, doubts, "doubt about L2Addresses", log),
		forwarding: newWriter(forwarding, api, "NodeForwarding", log),
		stale:      NewStaleMarker(node, api, log),
	}
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

// MarkStale implements report.Objects.
func (o *Objects) MarkStale(nodes map[string]time.Time) { o.stale.MarkStale(nodes) }

var _ report.Objects = (*Objects)(nil)
