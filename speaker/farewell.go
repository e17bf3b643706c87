package main

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"fairlead.dev/fairlead/internal/view"
)

// patience is for the context of goesForGood: pulse waits two seconds for our last word.
const patience = time.Second

// goesForGood tells whether this speaker, which was asked to stop, will not be back
// soon, and why. It does not when in doubt, as when the API server cannot be reached:
// expecting a restart costs seconds on one node, a needless move breaks connections.
func goesForGood(ctx context.Context, client kubernetes.Interface, c config, cluster *view.Cluster) (string, bool) {
	if cluster != nil {
		node := cluster.Nodes[c.node]
		switch {
		case node == nil || node.Deleting:
			return "the node is being removed", true
		case !node.Ready:
			return "the node is not ready, as when it shuts down", true
		case node.Cordoned:
			return "the node is cordoned, as before a reboot", true
		}
	}
	if c.daemonSet == "" {
		return "", false
	}
	set, err := daemonSet(ctx, client, c, isDeployed(cluster))
	switch {
	case apierrors.IsNotFound(err):
		return "the DaemonSet is gone", true
	case apierrors.IsUnauthorized(err) && isDeployed(cluster):
		return "", false // the pod was deleted by force
	case forbids(err):
		return "the permissions are gone, as in an uninstall", true
	case err == nil && set.DeletionTimestamp != nil:
		return "the DaemonSet is being removed", true
	case err == nil && cluster != nil && !labels.SelectorFromSet(set.Spec.Template.Spec.NodeSelector).Matches(labels.Set(cluster.Nodes[c.node].Labels)):
		return "the DaemonSet's nodeSelector no longer matches this node", true
	}
	return "", false
}

// isDeployed tells whether more speakers are to come, for all that is known without a question. An uninstall
// deletes the DaemonSet first, and its pods as a consequence: who is asked to stop has learned of it. A pod
// that is deleted by force takes its account's token with it, which tells nothing of the account then.
func isDeployed(cluster *view.Cluster) bool { return cluster != nil && cluster.Deployed }

// askAgain is how often an API server is asked that refuses to answer.
const askAgain = 100 * time.Millisecond

// daemonSet asks for the DaemonSet of this speaker, again and again until ctx ends while the API
// server forbids it: one that has just started may not have read yet who may ask. A refusal stands
// until the API server says something else; that a question found no time tells nothing. One whose
// DaemonSet is deployed is unknown for good: its pod is gone.
func daemonSet(ctx context.Context, client kubernetes.Interface, c config, deployed bool) (set *appsv1.DaemonSet, err error) {
	_ = wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		now, failed := client.AppsV1().DaemonSets(c.namespace).Get(ctx, c.daemonSet, metav1.GetOptions{})
		if forbids(err) && !answers(failed) {
			return false, nil
		}
		set, err = now, failed
		return !forbids(err) || deployed && apierrors.IsUnauthorized(err), nil
	})
	return set, err
}

// forbids tells whether the API server answers that this speaker may not ask.
func forbids(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// answers tells whether err, nil too, is what the API server said, and not that it was not asked or
// did not say anything: the client gives up before ctx ends when it sees that it will be too late.
func answers(err error) bool {
	var said apierrors.APIStatus
	return err == nil || errors.As(err, &said)
}
