package standing

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

// Watcher tells of changes to objects.
type Watcher interface {
	Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error)
}

// Follow has the L2Addresses be written again, until ctx ends, of which others take hold: two
// nodes that answered for a moment both have written, and the last to write is not always the
// one that goes on.
func (a *Addresses) Follow(ctx context.Context, api Watcher) error {
	return a.follow(ctx, api, &v1beta1.L2AddressList{}, ofNode(a.node))
}

// Follow has the BGPSessions be written again, until ctx ends, that others delete or mark.
func (s *Sessions) Follow(ctx context.Context, api Watcher) error {
	return s.follow(ctx, api, &v1beta1.BGPSessionList{}, ofNode(s.node))
}

// Follow has the NodeForwarding be written again, until ctx ends, when somebody deletes or marks it.
func (f *Forwardings) Follow(ctx context.Context, api Watcher) error {
	return f.follow(ctx, api, &v1beta1.NodeForwardingList{}, ofNode(f.node))
}

// Follow has the doubts be noted again, until ctx ends, in objects that were made anew.
func (d *Doubts) Follow(ctx context.Context, api Watcher) error {
	return d.follow(ctx, api, &v1beta1.L2AddressList{}, doubtedBy(d.kind.node))
}

// follow watches the objects that are this node's by their labels.
func (k *Keeper[T]) follow(ctx context.Context, api Watcher, list client.ObjectList, mine client.MatchingLabels) error {
	retry := firstRetry
	for {
		began := time.Now()
		k.watch(ctx, api, list, mine)
		if time.Since(began) > lastRetry {
			retry = firstRetry // API servers end watches now and then
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
		retry = min(2*retry, lastRetry)
	}
}

// watch returns when the watch ends. That the API server is away is logged by whoever writes.
func (k *Keeper[T]) watch(ctx context.Context, api Watcher, list client.ObjectList, mine client.MatchingLabels) {
	changes, err := api.Watch(ctx, list, mine)
	if err != nil {
		k.log.Debug("cannot watch the objects of this node; it is tried again", "kind", k.name, "error", err)
		return
	}
	defer changes.Stop()
	k.Doubt() // nobody saw what happened before
	for change := range changes.ResultChan() {
		if change.Type == watch.Error {
			return
		}
		object, err := meta.Accessor(change.Object)
		if err == nil && (change.Type == watch.Deleted || marked(change.Object)) && k.wants(object.GetName()) {
			k.Doubt()
		}
	}
}

// marked tells whether a witness has written to an object of this node that it does not hear it. Its
// pulse may be away, or be heard by nobody, while this process knows well how sessions and forwarding do.
// Who answers for addresses it knows by pulse alone.
func marked(object runtime.Object) bool {
	switch o := object.(type) {
	case *v1beta1.BGPSession:
		return o.Status.State == v1beta1.SessionUnknown
	case *v1beta1.NodeForwarding:
		return slices.ContainsFunc(o.Status.Conditions, func(c metav1.Condition) bool { return c.Reason == v1beta1.ReasonNodeSilent })
	}
	return false
}

// wants tells whether there should be an object of that name. The label of one that another node
// has written is not this node's, which looks as if it was deleted.
func (k *Keeper[T]) wants(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, is := k.wanted[name]
	return is
}
