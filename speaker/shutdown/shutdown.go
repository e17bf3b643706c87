// Package shutdown ends the work of a speaker that is asked to stop, and finds out whether it goes for good.
package shutdown

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

const (
	// within bounds what is done between the signal to stop and the exit.
	within = 5 * time.Second
	// decideWithin bounds how long it takes to find out whether the speaker goes for good: pulse waits two
	// seconds for the answer.
	decideWithin = time.Second
)

// Speaker identifies this speaker.
type Speaker struct {
	Node, Namespace, DaemonSet string
}

// Parts are what a speaker ends.
type Parts struct {
	// Leave withdraws the node's announcements, so that other nodes take over; the machine may shut down, too.
	Leave func(ctx context.Context, shutsDown bool) error
	// Close ends the BGP sessions, withdrawing the routes or so that routers keep them.
	Close func(ctx context.Context, withdraw bool) error
	// Remove deletes the status objects of the node.
	Remove func(ctx context.Context)
}

// Run ends the parts. A restart keeps everything: forwarding is in the kernel, pulse goes on or asks the other
// nodes for patience, and routers keep our routes. Only a speaker that goes for good hands over. The error joins
// those of the parts. cluster is the newest snapshot; nil: there is none.
func (s Speaker) Run(client kubernetes.Interface, cluster *view.Cluster, parts Parts, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	deciding, decided := context.WithTimeout(ctx, decideWithin)
	end := s.decide(deciding, client, cluster)
	decided()
	if end.reason == "" {
		log.Info("stopping; this node goes on serving and the speaker is expected back")
		return parts.Close(ctx, false)
	}
	log.Info("stopping for good; other nodes take over", "reason", end.reason)
	err := errors.Join(parts.Leave(ctx, end.shutsDown), parts.Close(ctx, true))
	parts.Remove(ctx)
	return err
}

// end is what becomes of a speaker that was asked to stop.
type end struct {
	reason    string // why it goes for good; empty: it is expected back
	shutsDown bool   // the machine goes, too
}

// kubeletEvery is how often it is looked whether the kubelet is there.
const kubeletEvery = 50 * time.Millisecond

// decide returns whether this speaker, which was asked to stop, will not be back soon, and why. In doubt, as when
// the API server cannot be reached, it will: expecting a restart costs seconds on one node, a needless move
// breaks connections.
//
// The kubelet is looked at until ctx ends. A pod's end is the work of a kubelet, which is there then and starts the
// next speaker. When the machine shuts down, systemd stops the kubelet before the containers, or at the same
// moment, and nothing starts a speaker (docs/adr/0032).
func (s Speaker) decide(ctx context.Context, client kubernetes.Interface, cluster *view.Cluster) end {
	var node *view.Node
	if cluster != nil {
		node = cluster.Nodes[s.Node]
	}
	if hasNoKubelet(node) {
		return end{"the kubelet has stopped, as when the machine shuts down", true}
	}
	if cluster != nil {
		if reason := whyGone(node); reason != "" {
			return end{reason: reason}
		}
	}
	asked := make(chan string, 1)
	go func() { asked <- s.ask(ctx, client, cluster) }()
	look := time.NewTicker(kubeletEvery)
	defer look.Stop()
	for {
		select {
		case reason := <-asked:
			return end{reason: reason}
		case <-look.C:
			if hasNoKubelet(node) {
				return end{"the kubelet stops, as when the machine shuts down", true}
			}
		}
	}
}

// hasNoKubelet reports whether nothing listens on the port of the node's kubelet. Where that cannot be told, one does.
func hasNoKubelet(node *view.Node) bool {
	if node == nil || node.KubeletPort == 0 {
		return false
	}
	there, err := listens(node.KubeletPort)
	return err == nil && !there
}

// whyGone returns why a node does not serve any more, empty if it does.
func whyGone(node *view.Node) string {
	switch {
	case node == nil || node.Deleting:
		return "the node is being removed"
	case !node.Ready:
		return "the node is not ready, as when it shuts down"
	case node.Cordoned:
		return "the node is cordoned, as before a reboot"
	case node.Condemned:
		return "an autoscaler is about to delete the node"
	}
	return ""
}

// ask asks the API server until ctx ends, and returns why this speaker goes for good, empty if nothing says so. A
// kubelet that shuts its node down says so in the Node's condition Ready, and stops pods without a wait for that.
func (s Speaker) ask(ctx context.Context, client kubernetes.Interface, cluster *view.Cluster) (reason string) {
	if s.DaemonSet == "" {
		return ""
	}
	if reason = s.whyUndeployed(ctx, client, cluster); reason != "" || cluster == nil {
		return reason
	}
	named := metav1.ListOptions{FieldSelector: "metadata.name=" + s.Node}
	_ = wait.PollUntilContextCancel(ctx, askNodeEvery, true, func(ctx context.Context) (bool, error) {
		nodes, err := client.CoreV1().Nodes().List(ctx, named)
		switch {
		case err != nil:
		case len(nodes.Items) == 0:
			reason = whyGone(nil)
		default:
			reason = whyGone(fromkube.Nodes{}.Read(&nodes.Items[0]))
		}
		return reason != "", nil
	})
	return reason
}

// whyUndeployed returns why the DaemonSet will not start this speaker again, empty if it will as far as is known.
func (s Speaker) whyUndeployed(ctx context.Context, client kubernetes.Interface, cluster *view.Cluster) string {
	set, err := s.daemonSet(ctx, client, isDeployed(cluster))
	switch {
	case apierrors.IsNotFound(err):
		return "the DaemonSet is gone"
	case apierrors.IsUnauthorized(err) && isDeployed(cluster):
		return "" // the pod was deleted by force
	case forbids(err):
		return "the permissions are gone, as in an uninstall"
	case err == nil && set.DeletionTimestamp != nil:
		return "the DaemonSet is being removed"
	case err == nil && cluster != nil && !labels.SelectorFromSet(set.Spec.Template.Spec.NodeSelector).Matches(labels.Set(cluster.Nodes[s.Node].Labels)):
		return "the DaemonSet's nodeSelector no longer matches this node"
	}
	return ""
}

// isDeployed reports whether the DaemonSet exists, from the informer alone. An uninstall deletes the DaemonSet
// first, and its pods as a consequence: a pod that is asked to stop has seen that. A pod that is deleted by force
// takes its account's token with it; that the token is unknown then says nothing about the account.
func isDeployed(cluster *view.Cluster) bool { return cluster != nil && cluster.Deployed }

// askAgain is the time between two requests to an API server that forbids them.
const askAgain = 100 * time.Millisecond

// askNodeEvery is the time between two questions for the Node.
const askNodeEvery = 200 * time.Millisecond

// daemonSet gets the DaemonSet of this speaker, again and again until ctx ends while the API server forbids it:
// one that has just started may not have read the permissions yet. It returns the last answer of the API server,
// or the error of a request that got none before. Where the DaemonSet is deployed, an unknown account is not
// tried again: its pod is gone.
func (s Speaker) daemonSet(ctx context.Context, client kubernetes.Interface, deployed bool) (set *appsv1.DaemonSet, err error) {
	_ = wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		now, failed := client.AppsV1().DaemonSets(s.Namespace).Get(ctx, s.DaemonSet, metav1.GetOptions{})
		if forbids(err) && !answers(failed) {
			return false, nil
		}
		set, err = now, failed
		return !forbids(err) || deployed && apierrors.IsUnauthorized(err), nil
	})
	return set, err
}

// forbids reports whether err says that this speaker has no permission.
func forbids(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// answers reports whether err, nil too, is an answer of the API server. The client sends no request, and returns
// another error, when it sees that it would be too late.
func answers(err error) bool {
	var answer apierrors.APIStatus
	return err == nil || errors.As(err, &answer)
}

// The tables of TCP sockets of this network namespace, which is the node's. That of IPv6 comes first, since a
// kubelet listens on both families by one socket there.
const (
	tcp6 = "/proc/net/tcp6"
	tcp4 = "/proc/net/tcp"
)

// listens reports whether a process listens on a TCP port of the node. The error is that of a table that cannot
// be read.
func listens(port uint16) (bool, error) {
	for _, table := range []string{tcp6, tcp4} {
		file, err := os.Open(table)
		if errors.Is(err, fs.ErrNotExist) && table == tcp6 {
			continue // a kernel without IPv6
		}
		if err != nil {
			return false, err
		}
		found, err := listenerIn(bufio.NewScanner(file), port)
		_ = file.Close()
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// listenerIn reports whether a table has a socket that listens on the port. The error is that of reading it. The
// kernel writes listening sockets first: of a table with a listener on the port, little is read.
func listenerIn(table *bufio.Scanner, port uint16) (bool, error) {
	const localField, stateField, listen = 1, 3, "0A"
	suffix := fmt.Sprintf(":%04X", port)
	for table.Scan() {
		fields := strings.Fields(table.Text())
		if len(fields) > stateField && fields[stateField] == listen && strings.HasSuffix(fields[localField], suffix) {
			return true, nil
		}
	}
	return false, table.Err()
}
