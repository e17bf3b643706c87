package links

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"fairlead.dev/fairlead/internal/signal"
)

// retryAfter is the pause before a broken subscription is renewed.
const retryAfter = time.Second

// routesAgain is after how long the kernel is asked again by which of several links with one subnet it routes that. Notices of
// routes would tell at once, and are hundreds of thousands where the host has the Internet's.
const routesAgain = time.Second

// noticeBuffer is the receive buffer asked of the kernel, in bytes: enough for
// the notices of a few hundred links that change at once. When it overflows
// all the same, the subscription is renewed and everything is listed again.
const noticeBuffer = 2 << 20

// Watcher keeps a Snapshot of the network namespace that Run is called in.
type Watcher struct {
	// Greets: on a link that comes up, it also has the kernel forget neighbours that did not answer.
	// For one process on a host, since another one would end what the kernel has begun to resolve by then.
	// To be set before Run.
	Greets bool

	log     *slog.Logger
	buffer  int // of the subscription, in bytes
	current atomic.Pointer[Snapshot]
	changed chan struct{}
}

// NewWatcher makes a watcher; it knows nothing before it runs.
func NewWatcher(log *slog.Logger) *Watcher {
	return &Watcher{log: log, buffer: noticeBuffer, changed: make(chan struct{}, 1)}
}

// Snapshot is the newest state; nil before the first complete one.
func (w *Watcher) Snapshot() *Snapshot { return w.current.Load() }

// Changed receives after Snapshot changed; several changes may come as one. It
// is for one receiver.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Run watches until the context ends, and returns nil then. Errors of the kernel are
// logged once and tried again; the last snapshot stands meanwhile.
func (w *Watcher) Run(ctx context.Context) error {
	logged, known := "", newTable()
	for {
		err := w.watch(ctx, known, func() { logged = "" })
		if ctx.Err() != nil {
			return nil
		}
		if err.Error() != logged {
			logged = err.Error()
			w.log.Warn("the notices about network interfaces broke off; subscribing again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryAfter):
		}
	}
}

// watch subscribes, lists, and then follows the notices until they break off.
// Subscribing comes first so that nothing is missed in between; a notice older
// than the list is undone by the newer ones behind it. The table is what was known before.
func (w *Watcher) watch(ctx context.Context, t *table, healthy func()) error {
	done := make(chan struct{})
	defer close(done)
	changes := make(chan change, 64)
	if err := subscribe(changes, done, w.buffer); err != nil {
		return fmt.Errorf("subscribe to notices: %w", err)
	}
	defer drain(changes)

	before := maps.Clone(t.links)
	if err := t.list(); err != nil {
		return err
	}
	for index, l := range t.links {
		w.greet(before[index], l)
	}
	w.publish(t)
	healthy()
	routes := time.NewTicker(routesAgain)
	defer routes.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-routes.C:
			if !w.Snapshot().shared() {
				continue
			}
		case c := <-changes:
			if c.err != nil {
				return c.err
			}
			w.follow(t, c)
		}
		if len(changes) == 0 {
			w.publish(t)
		}
	}
}

func (w *Watcher) follow(t *table, c change) {
	switch {
	case c.link != nil:
		index := c.link.link.Attrs().Index
		before := t.links[index]
		t.link(*c.link)
		w.greet(before, t.links[index])
	case c.address != nil:
		t.address(*c.address)
	}
}

// greet prepares a link that came up again for what is sent to its neighbours.
func (w *Watcher) greet(before, l Link) {
	if !w.Greets || before.Ups == 0 || l.Ups <= before.Ups {
		return
	}
	if err := forgetUnanswered(l.Index); err != nil {
		w.log.Debug("neighbours of a link that came up may be asked for late", "interface", l.Name, "error", err)
	}
}

// drain lets the sender behind a subscription that was given up come to its end.
func drain(changes <-chan change) {
	go func() {
		for range changes {
		}
	}()
}

// publish makes the table the newest snapshot if it says anything new.
func (w *Watcher) publish(t *table) {
	next := snapshotOf(aside(t.snapshot().links, routedBy))
	if last := w.current.Load(); last != nil && last.Equal(next) {
		return
	}
	w.current.Store(next)
	signal.Send(w.changed)
}
