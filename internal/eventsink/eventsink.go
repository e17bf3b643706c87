// Package eventsink writes Events of both programs, and has those be written again that an API server refuses for a while only.
package eventsink

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	typed "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// NewBroadcaster returns one that tries an Event again, a dozen times in two minutes, where the server may take it then. By itself
// it gives up whatever a server answers, and an Event that tells of a change is never told again: an API server that has just
// begun forbids what it has not read the roles of, and one whose etcd has no leader takes nothing.
func NewBroadcaster(to typed.EventsV1Interface) events.EventBroadcaster {
	return events.NewBroadcaster(sink{&events.EventSinkImpl{Interface: to}})
}

// Record returns what records Events in the name of a program, until stop is called: also the last ones, when ctx has ended. The
// error is that of a configuration that makes no client.
func Record(ctx context.Context, of cluster.Cluster, name string, log *slog.Logger) (recorder events.EventRecorder, stop func(), err error) {
	to, err := typed.NewForConfigAndClient(of.GetConfig(), of.GetHTTPClient())
	if err != nil {
		return nil, nil, fmt.Errorf("prepare to record Events: %w", err)
	}
	b := NewBroadcaster(to)
	ctx, cancel := context.WithCancel(logr.NewContext(context.WithoutCancel(ctx), logr.FromSlogHandler(log.Handler())))
	stop = func() { b.Shutdown(); cancel() }
	if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
		stop()
		return nil, nil, fmt.Errorf("prepare to record Events: %w", err)
	}
	return b.NewRecorder(of.GetScheme(), name), stop, nil
}

type sink struct{ events.EventSink }

// Create is of events.EventSink.
func (s sink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	written, err := s.EventSink.Create(ctx, e)
	return written, forNow(err)
}

// Patch is of events.EventSink.
func (s sink) Patch(ctx context.Context, e *eventsv1.Event, patch []byte) (*eventsv1.Event, error) {
	written, err := s.EventSink.Patch(ctx, e, patch)
	return written, forNow(err)
}

// forNow returns an error that does not look like a server's answer, if the same request may do better later. The rights in a
// namespace that is being deleted never come back.
func forNow(err error) error {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsTooManyRequests(err),
		apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err):
		return fmt.Errorf("not now: %w", err)
	}
	return err
}
