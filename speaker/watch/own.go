package watch

import (
	"time"
)

// located reports whether this node's Node is complete, or has been waited for long enough. A
// Node exists before the kubelet or a cloud's controller has written all of it.
func (w *Watch) located() bool {
	_, lacks := w.unknown()
	return w.config.Node == "" || w.without || !lacks
}

// lack is what is not known of this node's Node, what that means, and the remedy.
type lack struct{ what, without, hint string }

// unknown is the first thing that this node's Node lacks; false if it is complete.
func (w *Watch) unknown() (lack, bool) {
	switch own := w.objects.lastOwn; {
	case own == nil:
		return lack{
			"the cluster has no Node of our name", "going on without our own Node: NodePorts answer nowhere on this node",
			"the kubelet registers it; it has the name that kubectl get nodes shows",
		}, true
	case len(own.Addresses) == 0:
		return lack{
			"our own Node has no addresses", "going on without addresses of our own Node: NodePorts answer nowhere on this node",
			"the kubelet or the cloud's controller writes status.addresses",
		}, true
	case w.config.OwnPods && len(own.PodCIDRs) == 0 && w.objects.podCIDRsWritten():
		return lack{
			"our own Node has no podCIDRs", "going on without podCIDRs of our own Node: nothing for ClusterIPs is masqueraded",
			"the controller manager writes spec.podCIDRs; if none does, choose another forwarding.detectLocalMode",
		}, true
	}
	return lack{}, false
}

// awaitOwn begins to wait for this node's Node, unless it is complete.
func (w *Watch) awaitOwn() {
	if w.located() {
		return
	}
	lacks, _ := w.unknown()
	w.config.Log.Warn("our own Node is waited for: what the kernel has stays as it is meanwhile",
		"node", w.config.Node, "lacking", lacks.what, "waiting", w.config.OwnIn.String(), "hint", lacks.hint)
	w.waiting = time.AfterFunc(w.config.OwnIn, func() {
		w.update(func() bool {
			if w.newest != nil || w.located() {
				return false
			}
			lacks, _ := w.unknown()
			w.config.Log.Error("our own Node was waited for in vain", "node", w.config.Node, "now", lacks.without, "hint", lacks.hint)
			w.without = true
			return true
		})
	})
}

func (w *Watch) waitNoMore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting != nil {
		w.waiting.Stop()
	}
}
