package standing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/signal"
)

// grace is how long a node is silent before what it said is marked: a restart of its pulse is
// no death.
const grace = 5 * time.Second

// WitnessAPI is what is asked of the API server to mark what others have said.
type WitnessAPI interface {
	List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
	patcher
	Status() client.SubResourceWriter
}

// Witness marks the BGPSessions, L2Addresses and NodeForwardings of nodes that are not heard any more, of which
// nobody knows whether they are true still, and takes back what they doubted of others. A node
// that is back writes its own again.
type Witness struct {
	node string
	api  WitnessAPI
	log  *slog.Logger
	news chan struct{} // one slot

	mu     sync.Mutex
	silent map[string]time.Time
}

// NewWitness makes a witness that says in each mark that it is this node's.
func NewWitness(node string, api WitnessAPI, log *slog.Logger) *Witness {
	return &Witness{node: node, api: api, log: log, news: make(chan struct{}, 1)}
}

// Silent takes in which nodes are not heard any more, and since when. It does not wait.
func (w *Witness) Silent(nodes map[string]time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if maps.Equal(w.silent, nodes) {
		return
	}
	w.silent = nodes
	signal.Send(w.news)
}

// Run marks until ctx ends. What one node said is marked once for each silence.
func (w *Witness) Run(ctx context.Context) error {
	marked := map[string]time.Time{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.news:
		case <-timer.C:
		}
		wait, err := w.markAll(ctx, marked)
		if err == nil {
			retry = firstRetry
		} else if ctx.Err() == nil {
			w.log.Warn("cannot mark what nodes said that are not heard any more; it is tried again", "error", err)
			wait, retry = retry, min(2*retry, lastRetry)
		}
		timer.Reset(wait)
	}
}

// markAll returns how long to wait for what is not due yet.
func (w *Witness) markAll(ctx context.Context, marked map[string]time.Time) (time.Duration, error) {
	w.mu.Lock()
	silent := maps.Clone(w.silent)
	w.mu.Unlock()
	maps.DeleteFunc(marked, func(node string, since time.Time) bool { return !silent[node].Equal(since) })
	wait := relist
	var errs []error
	for node, since := range silent {
		if _, done := marked[node]; done {
			continue
		}
		if due := time.Until(since.Add(grace)); due > 0 {
			wait = min(wait, due)
			continue
		}
		words := fmt.Sprintf("node %s has not been heard since %s, says node %s: nobody knows whether it is true still",
			node, since.UTC().Format(time.RFC3339), w.node)
		if err := errors.Join(
			w.markSessions(ctx, node, since, words), w.markAddresses(ctx, node, since, words), w.markForwarding(ctx, node, since, words),
			w.dropDoubts(ctx, node),
		); err != nil {
			errs = append(errs, err)
			continue
		}
		marked[node] = since
	}
	return wait, errors.Join(errs...)
}

func (w *Witness) markSessions(ctx context.Context, node string, since time.Time, words string) error {
	var list v1beta1.BGPSessionList
	if err := w.api.List(ctx, &list, ofNode(node)); err != nil {
		return fmt.Errorf("list the BGPSessions of node %s: %w", node, err)
	}
	for i := range list.Items {
		have := &list.Items[i]
		if have.Spec.Node != node || have.Status.State == v1beta1.SessionUnknown {
			continue
		}
		next := have.DeepCopy()
		next.Status = v1beta1.BGPSessionStatus{
			State: v1beta1.SessionUnknown, Since: metav1.NewTime(since), LastError: words,
			LocalAddress: have.Status.LocalAddress, PeerASN: have.Status.PeerASN,
		}
		if err := w.write(ctx, have, next); err != nil {
			return fmt.Errorf("mark BGPSession %s: %w", have.Name, err)
		}
	}
	return nil
}

// markAddresses finds those that no other node has taken over.
func (w *Witness) markAddresses(ctx context.Context, node string, since time.Time, words string) error {
	var list v1beta1.L2AddressList
	if err := w.api.List(ctx, &list, ofNode(node)); err != nil {
		return fmt.Errorf("list the L2Addresses of node %s: %w", node, err)
	}
	for i := range list.Items {
		have := &list.Items[i]
		if have.Status.Node != node {
			continue
		}
		next := have.DeepCopy()
		if !meta.SetStatusCondition(&next.Status.Conditions, unknown(v1beta1.ConditionAnswering, since, words)) {
			continue
		}
		if err := w.write(ctx, have, next); err != nil {
			return fmt.Errorf("mark L2Address %s: %w", have.Name, err)
		}
	}
	return nil
}

// markForwarding has a node that is not heard say of nothing that it is well: its kernel may forward
// still, or not.
func (w *Witness) markForwarding(ctx context.Context, node string, since time.Time, words string) error {
	var list v1beta1.NodeForwardingList
	if err := w.api.List(ctx, &list, ofNode(node)); err != nil {
		return fmt.Errorf("list the NodeForwarding of node %s: %w", node, err)
	}
	for i := range list.Items {
		have := &list.Items[i]
		next, changed := have.DeepCopy(), false
		for _, said := range have.Status.Conditions {
			changed = meta.SetStatusCondition(&next.Status.Conditions, unknown(said.Type, since, words)) || changed
		}
		if !changed || have.Spec.Node != node {
			continue
		}
		if err := w.write(ctx, have, next); err != nil {
			return fmt.Errorf("mark NodeForwarding %s: %w", have.Name, err)
		}
	}
	return nil
}

// unknown is a condition of a node that is not heard.
func unknown(condition string, since time.Time, words string) metav1.Condition {
	return metav1.Condition{
		Type: condition, Status: metav1.ConditionUnknown, LastTransitionTime: metav1.NewTime(since),
		Reason: v1beta1.ReasonNodeSilent, Message: words,
	}
}

// dropDoubts takes back what a node doubted: another one asks now.
func (w *Witness) dropDoubts(ctx context.Context, node string) error {
	var list v1beta1.L2AddressList
	if err := w.api.List(ctx, &list, doubtedBy(node)); err != nil {
		return fmt.Errorf("list the doubts of node %s: %w", node, err)
	}
	for i := range list.Items {
		have := &list.Items[i]
		if err := (doubtKind{node, w.api}).remove(ctx, have); err != nil {
			return err
		}
	}
	return nil
}

// write leaves an object that somebody has written meanwhile: its node is back, or another
// one has taken it over.
func (w *Witness) write(ctx context.Context, have, next client.Object) error {
	err := w.api.Status().Patch(ctx, next, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
