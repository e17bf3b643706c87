package watch_test

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/watch"
)

// register makes the Node "own", which says where its pods are.
func register(t *testing.T, api client.Client) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: meta("", "own", nil), Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24"}}}
	if err := api.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	return node
}

// locate has the Node say at which address it is.
func locate(t *testing.T, api client.Client, node *corev1.Node, address string) {
	t.Helper()
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	if err := api.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

// What was last known of the own Node is in each snapshot, whatever becomes of the Node.
func testTheOwnNodeIsRemembered(t *testing.T, server *apiserver.Server) {
	o := observeAs(t, server, watch.Config{Node: "own", Log: slog.New(slog.DiscardHandler)}, func(t *testing.T, api client.Client) {
		locate(t, api, register(t, api), "198.51.100.1")
		locate(t, api, func() *corev1.Node {
			other := &corev1.Node{ObjectMeta: meta("", "other", nil)}
			if err := api.Create(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			return other
		}(), "198.51.100.99")
	})
	is := func(there bool, address string) func(*view.Cluster) bool {
		return func(c *view.Cluster) bool {
			own := c.OwnNode("own")
			return own != nil && (c.Nodes["own"] != nil) == there && slices.Equal(own.Addresses, []netip.Addr{netip.MustParseAddr(address)}) &&
				slices.Equal(own.PodCIDRs, []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")})
		}
	}
	remove := func() {
		if err := o.Delete(o.Context(), &corev1.Node{ObjectMeta: meta("", "own", nil)}); err != nil {
			t.Fatal(err)
		}
	}
	before := o.sees("the Node", is(true, "198.51.100.1"))
	remove()
	if c := o.sees("no Node, and where it was", is(false, "198.51.100.1")); !c.Others {
		t.Error("it is no news that the Node is gone")
	}
	anew := &corev1.Node{ObjectMeta: meta("", "own", map[string]string{"topology.kubernetes.io/zone": "east"})}
	o.create(anew)
	c := o.sees("another Node that says nothing, and where it was", is(true, "198.51.100.1"))
	if own := c.OwnNode("own"); own.UID == before.Nodes["own"].UID || own.Labels["topology.kubernetes.io/zone"] != "east" {
		t.Errorf("the Node is %+v, want the one that there is", own)
	}
	locate(t, o, anew, "198.51.100.2")
	o.sees("where it is now", is(true, "198.51.100.2"))
	remove()
	o.sees("no Node, and where it was last", is(false, "198.51.100.2"))
	if !is(true, "198.51.100.1")(before) {
		t.Error("an old snapshot was written to")
	}
}

// logs waits until a log has a line with a text.
func logs(t *testing.T, log testlog.Lines, text string) {
	t.Helper()
	for limit := time.After(patience); ; {
		select {
		case line := <-log:
			if strings.Contains(line, text) {
				return
			}
		case <-limit:
			t.Fatalf("never logged: %s", text)
		}
	}
}

// A Node that is there may say nothing of itself yet.
func testTheFirstSnapshotHasWhatTheOwnNodeSays(t *testing.T, server *apiserver.Server) {
	for name, test := range map[string]struct {
		ownPods bool
		node    func(*corev1.Node)
		says    string
		finish  func(*testing.T, client.Client, *corev1.Node)
	}{
		"addresses": {
			says: "our own Node has no addresses",
			finish: func(t *testing.T, api client.Client, node *corev1.Node) {
				t.Helper()
				locate(t, api, node, "198.51.100.1")
			},
		},
		"podCIDRs": {
			ownPods: true, says: "our own Node has no podCIDRs",
			node: func(n *corev1.Node) {
				n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "198.51.100.1"}}
			},
			finish: func(t *testing.T, api client.Client, node *corev1.Node) {
				t.Helper()
				node.Spec.PodCIDR, node.Spec.PodCIDRs = "10.244.1.0/24", []string{"10.244.1.0/24"}
				if err := api.Update(t.Context(), node); err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			log, node := make(testlog.Lines, 1000), &corev1.Node{ObjectMeta: meta("", "own", nil)}
			config := watch.Config{Node: "own", OwnIn: time.Hour, OwnPods: test.ownPods, Log: slog.New(slog.NewTextHandler(log, nil))}
			o := observeAs(t, server, config, func(t *testing.T, api client.Client) {
				t.Helper()
				if err := api.Create(t.Context(), node); err != nil {
					t.Fatal(err)
				}
				if test.node == nil {
					return
				}
				test.node(node)
				if err := api.Status().Update(t.Context(), node); err != nil {
					t.Fatal(err)
				}
			})
			logs(t, log, test.says)
			if o.Snapshot() != nil {
				t.Error("there is a snapshot without what the own Node is to say")
			}
			test.finish(t, o, node)
			c := o.sees("a snapshot", func(*view.Cluster) bool { return true })
			if own := c.Nodes["own"]; own == nil || len(own.Addresses) == 0 || test.ownPods && len(own.PodCIDRs) == 0 {
				t.Errorf("the first snapshot has the Node %+v", own)
			}
			empty(t, o)
		})
	}
}

// Where no Node has podCIDRs, none comes to this one.
func testPodCIDRsThatNobodyWritesAreNotWaitedFor(t *testing.T, server *apiserver.Server) {
	config := watch.Config{Node: "own", OwnIn: time.Hour, OwnPods: true, Log: slog.New(slog.DiscardHandler)}
	o := observeAs(t, server, config, func(t *testing.T, api client.Client) {
		t.Helper()
		for _, name := range []string{"own", "other"} {
			node := &corev1.Node{ObjectMeta: meta("", name, nil)}
			if err := api.Create(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			locate(t, api, node, "198.51.100.1")
		}
	})
	o.sees("a snapshot", func(c *view.Cluster) bool { return len(c.Nodes) == 2 })
	// Nor does one that has begun stop, when it can no longer be known that none come.
	if err := o.Delete(o.Context(), &corev1.Node{ObjectMeta: meta("", "other", nil)}); err != nil {
		t.Fatal(err)
	}
	o.sees("the own Node alone", func(c *view.Cluster) bool { return len(c.Nodes) == 1 })
}

// Who does not know where it is does not know at which addresses NodePorts answer, which an
// earlier speaker may have left in the kernel: there is no snapshot before that is known.
func testTheFirstSnapshotHasTheOwnNode(t *testing.T, server *apiserver.Server) {
	log := make(testlog.Lines, 1000)
	o := observeAs(t, server, watch.Config{Node: "own", OwnIn: time.Hour, Log: slog.New(slog.NewTextHandler(log, nil))})
	logs(t, log, "the cluster has no Node of our name")
	if c := o.Snapshot(); c != nil {
		t.Errorf("there is a snapshot without the own Node, of %d", len(c.Nodes))
	}
	locate(t, o, register(t, o), "198.51.100.1")
	if c := o.sees("a snapshot", func(*view.Cluster) bool { return true }); c.Nodes["own"] == nil {
		t.Errorf("the first snapshot has the nodes %v", c.Nodes)
	}
}

// A Node that does not come holds up the rest of the cluster for a while only.
func testTheOwnNodeIsWaitedForInVain(t *testing.T, server *apiserver.Server) {
	log := make(testlog.Lines, 1000)
	o := observeAs(t, server, watch.Config{Node: "own", OwnIn: time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil))})
	logs(t, log, "going on without our own Node")
	if c := o.sees("a snapshot", func(*view.Cluster) bool { return true }); c.OwnNode("own") != nil {
		t.Errorf("somebody made the Node %+v", c.OwnNode("own"))
	}
	locate(t, o, register(t, o), "198.51.100.1")
	o.sees("the Node that came late", func(c *view.Cluster) bool { return c.OwnNode("own") != nil && len(c.OwnNode("own").Addresses) == 1 })
}
