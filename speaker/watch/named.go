package watch

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// refusals are so many refusals of one Secret in a row, about a second apart, that it counts as one that may not be
// read: the controller lets the speakers read it once it has seen the BGPPeer that names it.
const refusals = 2

// named are the Secrets that this node needs, by name: the key of the hellos, and the passwords of its own peers.
type named struct {
	reading map[string]*reading
	changed bool // since the last snapshot
}

// reading is how far the reading of one Secret is.
type reading struct {
	read    bool // it is there, or not there
	refused int  // how many times in a row
}

func newNamed() named {
	return named{reading: map[string]*reading{v1beta1.HelloSecret: {}}, changed: true}
}

func (r *reading) settled() bool { return r != nil && (r.read || r.refused >= refusals) }

// settled reports whether it is known of each Secret what it has, or that it cannot be read.
func (n *named) settled() bool {
	for _, r := range n.reading {
		if !r.settled() {
			return false
		}
	}
	return true
}

// secret stores what was read of a Secret, unless it is not needed any more.
func (o *objects) secret(key client.ObjectKey, s *corev1.Secret, present bool) bool {
	return o.named.reading[key.Name] != nil && put(o.Secrets, key.Name, s, present)
}

// need takes in which Secrets the peers of a snapshot need. It takes peers out of it whose Secrets are not read yet, as
// if they were made a moment later, and what is said of Secrets that other nodes need.
func (o *objects) need(c *view.Cluster) {
	needed, passwordOf := map[string]bool{v1beta1.HelloSecret: true}, map[string]string{}
	for name, peer := range c.BGPPeers {
		ref := o.BGPPeers.Objects[name].Spec.PasswordSecret
		if ref == nil {
			continue
		}
		passwordOf[name] = ref.Name
		needed[ref.Name] = needed[ref.Name] || o.own == "" || o.lastOwn != nil && view.MatchesAny(peer.NodeSelectors, o.lastOwn.Labels)
	}
	maps.DeleteFunc(needed, func(_ string, here bool) bool { return !here })
	for name := range needed {
		if o.named.reading[name] == nil {
			o.named.reading[name], o.named.changed = &reading{}, true
		}
	}
	for name := range o.named.reading {
		if !needed[name] {
			delete(o.named.reading, name)
			delete(o.Secrets, name)
			o.named.changed = true
		}
	}
	c.Problems = slices.DeleteFunc(c.Problems, func(p problem.Problem) bool {
		return p.Reason == fromkube.ReasonSecretMissing && p.Object.Kind == "BGPPeer" && !o.named.reading[passwordOf[p.Object.Name]].settled()
	})
	maps.DeleteFunc(c.BGPPeers, func(name string, _ *view.BGPPeer) bool {
		r := o.named.reading[passwordOf[name]]
		return r != nil && !r.settled()
	})
}

// followNamed feeds the Secrets that are needed into the objects, until ctx ends.
func (w *Watch) followNamed(ctx context.Context, api kubernetes.Interface, k *kind) {
	var running sync.WaitGroup
	defer running.Wait()
	following := map[string]context.CancelFunc{}
	for {
		w.mu.Lock()
		needed := maps.Clone(w.objects.named.reading)
		w.mu.Unlock()
		for name, stop := range following {
			if needed[name] == nil {
				stop()
				delete(following, name)
			}
		}
		for name := range needed {
			if following[name] == nil {
				one, stop := context.WithCancel(ctx)
				following[name] = stop
				running.Go(func() { w.followSecret(one, api, k, name) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-w.naming:
		}
	}
}

// followSecret feeds one Secret into the objects, until ctx ends.
func (w *Watch) followSecret(ctx context.Context, api kubernetes.Interface, k *kind, name string) {
	list := toolscache.NewListWatchFromClient(api.CoreV1().RESTClient(), "secrets", w.config.Namespace, fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	informer := toolscache.NewSharedInformer(list, &corev1.Secret{}, 0)
	read, err := informer.AddEventHandler(w.applies(k))
	if err == nil {
		err = informer.SetTransform(w.know)
	}
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
			if apierrors.IsForbidden(err) { // as it is for a moment of each new peer
				w.refuse(k, name, err)
				return
			}
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		})
	}
	if err != nil { // of an informer that runs already
		w.config.Log.Error("cannot watch a Secret", "secret", name, "error", err)
		return
	}
	go func() {
		select {
		case <-read.HasSyncedChecker().Done():
			w.update(func() bool { return w.readNamed(k, name) })
		case <-ctx.Done():
		}
	}()
	informer.RunWithContext(ctx)
}

// readNamed notes that a Secret has been read; of the key of the hellos, that the kind has: without one, no node is ready.
func (w *Watch) readNamed(k *kind, name string) bool {
	r := w.objects.named.reading[name]
	if r == nil {
		return false
	}
	*r = reading{read: true}
	w.objects.others = true
	return name != v1beta1.HelloSecret || w.read(k)
}

// refuse notes that a Secret may not be read.
func (w *Watch) refuse(k *kind, name string, err error) {
	if name == v1beta1.HelloSecret {
		w.lack(k, ReasonKindForbidden, err)
		return
	}
	w.update(func() bool {
		r := w.objects.named.reading[name]
		if r == nil || r.read {
			return false
		}
		if r.refused++; r.refused != refusals {
			return false
		}
		w.config.Log.Warn("the speaker may not read a Secret that a BGPPeer names; it is tried again", "secret", name, "error", err,
			"hint", "the controller grants it, in the Role fairlead-speaker-passwords: see that one leads, and its log")
		w.objects.others = true
		return true
	})
}
