package statuswriter

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

// grace is how long a node is dead before its objects are marked: a restart of its pulse is
// no death.
const grace = 5 * time.Second

// StaleMarker marks the BGPSessions, L2Addresses and NodeForwardings of dead nodes as stale, and takes back
// the doubts that these had about others. A node that is back writes its own again.
type StaleMarker struct {
	node string
	api  client.Client
	log  *slog.Logger
	news chan struct{} // one slot

	mu   sync.Mutex
	dead map[string]time.Time
}

// NewStaleMarker makes a marker that names this node in each mark.
func NewStaleMarker(node string, api client.Client, log *slog.Logger) *StaleMarker {
	return &StaleMarker{node: node, api: api, log: log, news: make(chan struct{}, 1)}
}

// MarkStale takes in all dead nodes, and since when they are. It does not wait.
func (m *StaleMarker) MarkStale(nodes map[string]time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if maps.Equal(m.dead, nodes) {
		return
	}
	m.dead = nodes
	signal.Send(m.news)
}

// Run marks until ctx ends, once for each death of a node, and returns nil then. Errors are logged and tried
// again.
func (m *StaleMarker) Run(ctx context.Context) error {
	marked := map[string]time.Time{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.news:
		case <-timer.C:
		}
		wait, err := m.markAll(ctx, marked)
		if err == nil {
			retry = firstRetry
		} else if ctx.Err() == nil {
			m.log.Warn("cannot mark the objects of dead nodes as stale; it is tried again", "error", err)
			wait, retry = retry, longer(retry)
		}
		timer.Reset(wait)
	}
}

// markAll returns how long to wait for nodes with a grace that is not over, and the errors of the API server.
func (m *StaleMarker) markAll(ctx context.Context, marked map[string]time.Time) (time.Duration, error) {
	m.mu.Lock()
	dead := maps.Clone(m.dead)
	m.mu.Unlock()
	maps.DeleteFunc(marked, func(node string, since time.Time) bool { return !dead[node].Equal(since) })
	wait := relist
	var errs []error
	for node, since := range dead {
		if _, done := marked[node]; done {
			continue
		}
		if due := time.Until(since.Add(grace)); due > 0 {
			wait = min(wait, due)
			continue
		}
		if err := m.mark(ctx, node, since); err != nil {
			errs = append(errs, err)
			continue
		}
		marked[node] = since
	}
	return wait, errors.Join(errs...)
}

// mark makes the objects of a node say that their state is unknown: its kernel may go on, or not.
func (m *StaleMarker) mark(ctx context.Context, node string, since time.Time) error {
	words := fmt.Sprintf("node %s has not been heard since %s, says node %s: nobody knows whether it is true still",
		node, since.UTC().Format(time.RFC3339), m.node)
	unknown := func(condition string) metav1.Condition {
		return metav1.Condition{
			Type: condition, Status: metav1.ConditionUnknown, LastTransitionTime: metav1.NewTime(since),
			Reason: v1beta1.ReasonNodeSilent, Message: words,
		}
	}
	return errors.Join(
		markEach(ctx, m.api, "BGPSession", node, &v1beta1.BGPSessionList{}, func(s *v1beta1.BGPSession) bool {
			marked := s.Spec.Node != node || s.Status.State == v1beta1.SessionUnknown
			s.Status = v1beta1.BGPSessionStatus{
				State: v1beta1.SessionUnknown, Since: metav1.NewTime(since), LastError: words,
				LocalAddress: s.Status.LocalAddress, PeerASN: s.Status.PeerASN,
			}
			return !marked
		}),
		markEach(ctx, m.api, "L2Address", node, &v1beta1.L2AddressList{}, func(a *v1beta1.L2Address) bool {
			// The address of another node has been taken over.
			return a.Status.Node == node && meta.SetStatusCondition(&a.Status.Conditions, unknown(v1beta1.ConditionAnswering))
		}),
		markEach(ctx, m.api, "NodeForwarding", node, &v1beta1.NodeForwardingList{}, func(f *v1beta1.NodeForwarding) bool {
			changed := false
			for _, c := range f.DeepCopy().Status.Conditions {
				changed = meta.SetStatusCondition(&f.Status.Conditions, unknown(c.Type)) || changed
			}
			return changed && f.Spec.Node == node
		}),
		m.dropDoubts(ctx, node),
	)
}

// markEach writes the status of those objects of a node that mark changes. It leaves an object that has been
// written meanwhile: its node is back, or another one has taken it over.
func markEach[T client.Object](ctx context.Context, api client.Client, kind, node string, list client.ObjectList, mark func(T) bool) error {
	err := each(ctx, api, list, ofNode(node), func(have T) error {
		next := have.DeepCopyObject().(T)
		if !mark(next) {
			return nil
		}
		err := api.Status().Patch(ctx, next, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("mark each %s of node %s: %w", kind, node, err)
	}
	return nil
}

// dropDoubts takes back the doubts of a node: another one asks now.
func (m *StaleMarker) dropDoubts(ctx context.Context, node string) error {
	err := each(ctx, m.api, &v1beta1.L2AddressList{}, doubtedBy(node), func(have *v1beta1.L2Address) error {
		return doubtKind{node, m.api}.remove(ctx, have)
	})
	if err != nil {
		return fmt.Errorf("take back the doubts of node %s: %w", node, err)
	}
	return nil
}
