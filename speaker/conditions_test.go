package main

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/report"
	"fairlead.dev/fairlead/speaker/report/statuswriter"
)

// appearsIn is more than what does happen takes on a busy machine.
const appearsIn = 3 * time.Minute

// node is one whose forwarding tells of itself in a NodeForwarding: a real kernel, a real
// API server, and between them all that a speaker has.
type node struct {
	*blackbox.Cluster
	t    *testing.T
	want desired.Forwarding
	api  client.Client
}

// untold takes Events that no test reads.
type untold struct{}

func (untold) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// newNode begins to forward on a node on which there is no program at all, and goes on until
// the test ends.
func newNode(t *testing.T, mode forwarding.Mode) *node {
	t.Helper()
	var backend *forwarding.Forwarder
	n := &node{t: t, want: blackbox.Forwarding(blackbox.Services()...)}
	n.Cluster = blackbox.NewCluster(t, func() (blackbox.Backend, error) {
		t.Setenv("PATH", t.TempDir())
		var err error
		backend, err = forwarding.New(forwarding.Config{Mode: mode, Log: blackbox.Quiet()})
		return backend, err
	})
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config := apiserver.Start(t).Config
	var err error
	if n.api, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	if err := n.api.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	written, err := statuswriter.New("node1", config, blackbox.Quiet())
	if err != nil {
		t.Fatal(err)
	}
	reporter := report.New(report.Config{
		Node: "node1", Recorder: untold{}, Objects: written, Mode: string(mode), Kernel: backend,
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	reporter.Rivals(nil, nil)
	ctx, stop := context.WithCancel(context.Background())
	disturbed := make(chan struct{}, 1)
	cluster := &view.Cluster{Nodes: map[string]*view.Node{"node1": {Name: "node1", UID: string(object.UID)}}}
	ended := make(chan struct{}, 3)
	for _, run := range []func(){
		func() { _ = written.Run(ctx) },
		func() { n.Node.Do(func() { backend.Watch(ctx, func() { signal.Send(disturbed) }) }) },
		func() {
			for ctx.Err() == nil {
				missing, err := n.Try(n.want)
				reporter.Report(agent.Outcome{Cluster: cluster, Want: desired.Node{Forwarding: n.want}, Missing: missing, Err: err})
				select {
				case <-ctx.Done():
				case <-disturbed:
				}
			}
		},
	} {
		go func() {
			run()
			ended <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		stop()
		for range 3 {
			<-ended
		}
	})
	return n
}

// says waits until a condition is as it should be, and returns the object.
func (n *node) says(kind string, status metav1.ConditionStatus, reason, words string) *v1beta1.NodeForwarding {
	n.t.Helper()
	var object v1beta1.NodeForwarding
	for began := time.Now(); time.Since(began) < appearsIn; time.Sleep(100 * time.Millisecond) {
		if err := n.api.Get(n.t.Context(), client.ObjectKey{Name: "node1"}, &object); client.IgnoreNotFound(err) != nil {
			n.t.Fatal(err)
		}
		c := meta.FindStatusCondition(object.Status.Conditions, kind)
		if c != nil && c.Status == status && c.Reason == reason && strings.Contains(c.Message, words) {
			return &object
		}
	}
	n.t.Fatalf("%s is never %s for %s with %q in the message; it has %+v", kind, status, reason, words, object.Status)
	return nil
}

// serves holds that a client reaches a Service by each family.
func (n *node) serves(when string) {
	n.t.Helper()
	for _, f := range addr.Families() {
		to := netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(f).VIPs, 2), 80)
		if got, err := n.Client.Ask("tcp", to, blackbox.AnswerIn); err != nil || got.Server != "p1" {
			n.t.Errorf("%s, %s: %v, %v", when, f, got, err)
		}
	}
}

// TestConditionsOfARealNode has a node without iptables, which gets them, and whose rules
// somebody else takes away: the conditions say so, all is forwarded, and nothing is restarted.
func TestConditionsOfARealNode(t *testing.T) {
	path := os.Getenv("PATH")
	n := newNode(t, forwarding.IPTables)
	s := n.says("Programmed", "False", "ProgramMissing", "install iptables").Status
	if s.Tool != "" || s.ProgrammedPorts != 0 || int(s.Ports) != len(n.want.Ports) || int(s.Services) != len(blackbox.Services()) || s.Problems != 1 {
		t.Errorf("of a node without iptables: %+v", s)
	}
	n.says("Undisturbed", "True", "AsExpected", "")

	t.Setenv("PATH", path)
	s = n.says("Programmed", "True", "AsExpected", "").Status
	if !strings.HasPrefix(s.Tool, "iptables-") || s.Mode != "iptables" {
		t.Errorf("of a node that has iptables now: %+v", s)
	}
	n.serves("with iptables")

	for _, program := range []string{s.Tool, "ip6" + strings.TrimPrefix(s.Tool, "ip")} {
		n.Run(program, "-t", "nat", "-F")
	}
	n.says("Undisturbed", "False", "RulesChanged", "written again")
	n.says("Programmed", "True", "AsExpected", "")
	n.serves("after a flush")

	n.Node.Do(func() { n.Node.Sysctl("net/ipv4/ip_forward", "0") })
	n.says("Programmed", "False", "ForwardingDisabled", "net.ipv4.ip_forward is 0")
}
