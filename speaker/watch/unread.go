package watch

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	toolscache "k8s.io/client-go/tools/cache"

	"fairlead.dev/fairlead/internal/apihint"
	"fairlead.dev/fairlead/internal/problem"
)

// Reasons why a kind cannot be read, which a Node tells of.
const (
	ReasonKindMissing   = "KindMissing"   // the cluster does not have it
	ReasonKindForbidden = "KindForbidden" // the speaker may not read it
)

// unread is why a kind has not been read, as long as it has not.
type unread struct {
	reason string
	err    error // in the words in which it began
}

func (k *kind) name() string { return reflect.TypeOf(k.example).Elem().Name() }

// miss reports that a kind cannot be watched now, since the informer cannot be made. That is logged
// once; the API server may have been away at first, and have answered since that it has no
// such kind.
func (w *Watch) miss(k *kind, err error, logged bool) {
	absent := meta.IsNoMatchError(err)
	if absent {
		w.lack(k, ReasonKindMissing, err)
	}
	switch {
	case logged:
	case absent && k.optional:
		w.config.Log.Info("this API server does not have a kind; all goes on without what it tells", "kind", fmt.Sprintf("%T", k.example))
	default:
		why, hint := apihint.Why(err, apihint.OfSpeakers)
		if absent {
			hint = w.installKinds()
		}
		w.config.Log.Error("cannot watch a kind; it is tried again", "kind", fmt.Sprintf("%T", k.example), "hint", hint, "error", why)
	}
}

// installKinds is what to do where the cluster lacks our kinds.
func (w *Watch) installKinds() string { return cmp.Or(w.outdated, apihint.InstallCRDs) }

// judge finds out whether the API server is too old. All that it serves is used nevertheless.
func (w *Watch) judge() {
	api, err := discovery.NewDiscoveryClientForConfig(w.config.REST)
	if err != nil {
		return // the informers have been made of the same
	}
	if w.outdated = apihint.Outdated(api); w.outdated != "" {
		w.config.Log.Error("the API server is too old", "hint", w.outdated)
	}
}

// reach reports why the API server has not been reached, "" once it has.
func (w *Watch) reach(why string) {
	if w.config.Unreached != nil {
		w.config.Unreached(why)
	}
}

// failed handles the failure of a list or a watch. An informer tries again and does not report by
// itself that a kind is forbidden or missing for good.
func (w *Watch) failed(ctx context.Context, r *toolscache.Reflector, err error) {
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
	i := slices.IndexFunc(w.kinds, func(k *kind) bool { return fmt.Sprintf("%T", k.example) == r.TypeDescription() })
	switch {
	case i < 0:
	case apierrors.IsForbidden(err):
		w.lack(w.kinds[i], ReasonKindForbidden, err)
	case apierrors.IsNotFound(err):
		w.lack(w.kinds[i], ReasonKindMissing, err)
	}
}

// lack notes why a kind has not been read. A kind that has been read once stays as it is known.
func (w *Watch) lack(k *kind, reason string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k.synced || k.optional || k.unread.reason == reason {
		return
	}
	k.unread = unread{reason, err}
	w.reportUnread()
}

// reportUnread passes on which kinds cannot be read, and why. The lock is held.
func (w *Watch) reportUnread() {
	if w.config.Unread == nil {
		return
	}
	var problems []problem.Problem
	for _, k := range w.kinds {
		if k.unread.reason == "" {
			continue
		}
		without, fix := "announces no address", w.installKinds()
		if k.core {
			without = "neither programs nor announces anything"
		}
		if k.unread.reason == ReasonKindForbidden {
			fix = "give it the roles fairlead-speaker of this release, as helm upgrade does"
		}
		problems = append(problems, problem.New(problem.Object{Kind: "Node", Name: w.config.Node}, k.unread.reason,
			"the speaker cannot read the kind %s: %v; until it has, it %s anew and is not ready: %s", k.name(), k.unread.err, without, fix))
	}
	w.config.Unread(problems)
}
