package statuswriter

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// Watcher watches objects.
type Watcher interface {
	Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error)
}

// Follow has the objects written again, until ctx ends, that are deleted, marked as stale or relabelled by
// others: of two nodes that answered for an address for a moment, the last to write is not always the one that
// goes on answering. It returns nil; errors of the API server are tried again.
func (w *Writer[T]) Follow(ctx context.Context, api Watcher) error {
	retry := firstRetry
	for {
		began := time.Now()
		w.watch(ctx, api)
		if time.Since(began) > lastRetry {
			retry = firstRetry // API servers end watches now and then
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
		retry = longer(retry)
	}
}

// watch returns when the watch ends. That the API server is away is logged by Run.
func (w *Writer[T]) watch(ctx context.Context, api Watcher) {
	list, labels := w.of.selects()
	changes, err := api.Watch(ctx, list, labels)
	if err != nil {
		w.log.Debug("cannot watch the objects of this node; it is tried again", "kind", w.name, "error", err)
		return
	}
	defer changes.Stop()
	w.Resync() // what happened before was not seen
	for change := range changes.ResultChan() {
		if change.Type == watch.Error {
			return
		}
		object, err := meta.Accessor(change.Object)
		if err == nil && (change.Type == watch.Deleted || stale(change.Object)) && w.wants(object.GetName()) {
			w.Resync()
		}
	}
}

// stale reports whether another node has marked an object of this one as stale. The pulse of this node may be
// away, or unheard, while this process knows how sessions and forwarding do. Which addresses the node answers
// for it knows from pulse alone.
func stale(object runtime.Object) bool {
	switch o := object.(type) {
	case *v1beta1.BGPSession:
		return o.Status.State == v1beta1.SessionUnknown
	case *v1beta1.NodeForwarding:
		return slices.ContainsFunc(o.Status.Conditions, func(c metav1.Condition) bool { return c.Reason == v1beta1.ReasonNodeSilent })
	}
	return false
}

// wants reports whether there should be an object of that name. One that another node has written has another
// label, which looks as if it was deleted.
func (w *Writer[T]) wants(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, is := w.wanted[name]
	return is
}
