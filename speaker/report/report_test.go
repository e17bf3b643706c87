package report_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/report"
)

// events keeps what is recorded, in words.
type events []string

func (e *events) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	o := regarding.(*corev1.ObjectReference)
	*e = append(*e, strings.TrimPrefix(fmt.Sprintf("%s/%s %s %s: ", o.Namespace, o.Name, kind, reason)+fmt.Sprintf(note, args...), "/"))
}

func (e *events) want(t *testing.T, texts ...string) {
	t.Helper()
	if !slices.Equal(*e, texts) {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(*e, "\n"), strings.Join(texts, "\n"))
	}
	*e = nil
}

// unread are objects for tests of what is told elsewhere.
type unread struct{}

func (unread) Sessions(types.UID, map[string]bgp.State, map[string]bfd.Status) {}

func (unread) Addresses(types.UID, map[netip.Addr]report.Address) {}

func (unread) Doubts(map[netip.Addr]api.Doubt) {}

func (unread) Forwarding(types.UID, v1beta1.NodeForwardingStatus) {}

func (unread) MarkStale(map[string]time.Time) {}

var vip, vip6 = netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")

func anOutcome() agent.Outcome {
	s := &view.Service{Ref: view.Ref{Namespace: "shop", Name: "web"}, VIPs: []netip.Addr{vip, vip6}}
	key := desired.PortKey{Service: s.Ref, Protocol: view.TCP, Family: addr.IPv4}
	return agent.Outcome{
		Cluster: &view.Cluster{Services: map[view.Ref]*view.Service{s.Ref: s}},
		Want: desired.Node{Forwarding: desired.Forwarding{
			Ports: map[desired.PortKey]desired.Port{key: {}}, Count: map[addr.Family]int{addr.IPv4: 1},
		}},
	}
}

// toldTo has a reporter tell in Events alone.
func toldTo(recorder report.Recorder) report.Config {
	return report.Config{
		Node: "node1", Recorder: recorder, Objects: unread{},
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	}
}

func TestEventsTellWhatChanged(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	r.Report(anOutcome())
	owned := map[netip.Addr]api.Ownership{vip: {Interfaces: []string{"eth0"}, Since: time.Now()}}
	r.Owns(owned)
	r.Owns(owned)
	got.want(t, "shop/web Normal AnsweringARP: node node1 answers for 192.0.2.10 on eth0")
	owned = maps.Clone(owned)
	owned[vip6] = api.Ownership{Interfaces: []string{"eth0", "eth1"}, Since: time.Now()}
	r.Owns(owned)
	got.want(t, "shop/web Normal AnsweringNDP: node node1 answers for 2001:db8::10 on eth0, eth1")

	r.Sessions(map[string]bgp.State{"tor": {LastError: "dialing"}})
	r.Sessions(map[string]bgp.State{"tor": {Phase: bgp.Established}})
	r.Sessions(map[string]bgp.State{"tor": {Phase: bgp.Established, Advertised: 3}})
	r.Sessions(map[string]bgp.State{"tor": {LastError: "hold timer expired"}})
	r.Sessions(map[string]bgp.State{"tor": {LastError: "hold timer expired"}})
	got.want(t, "tor Normal SessionUp: node node1: the session is established", "tor Warning SessionDown: node node1: hold timer expired")
}

func TestAnOwnershipThatIsKnownBeforeItsServiceIsTold(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	r.Owns(map[netip.Addr]api.Ownership{vip: {Interfaces: []string{"eth0"}, Since: time.Now()}})
	got.want(t)
	r.Report(anOutcome())
	r.Report(anOutcome())
	got.want(t, "shop/web Normal AnsweringARP: node node1 answers for 192.0.2.10 on eth0")
}

func TestAnotherProxyIsToldOnceOnTheNode(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	for range 2 {
		r.Report(anOutcome())
		r.Rivals([]string{"nftables rules (IPv4)"}, nil)
	}
	got.want(t, "node1 Warning OtherProxy: kube-proxy has rules in this node's kernel besides Fairlead's: nftables rules (IPv4); "+
		"remove it and run kube-proxy --cleanup on the node, or set the Helm value forwarding.mode to none")
	r.Rivals(nil, nil)
	r.Rivals([]string{"nftables rules (IPv4)"}, nil)
	if len(got) != 1 {
		t.Errorf("%d Events after it went and came back, want one more", len(got))
	}
}

func TestAConnectionTableThatIsFullIsToldUntilItHasRoom(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	for _, flows := range []int{0, 89, 90, 100, 81} {
		r.Connections(flows, 100)
	}
	got.want(t, "node1 Warning ConnectionTableFull: the kernel's connection table, which has room for 100 flows, is full or nearly so; "+
		"once it is, the first packets of new connections are dropped, those to Services among them: find out who has so many (conntrack -L), "+
		"set a larger Helm value forwarding.conntrack.maxPerCore, or net.netfilter.nf_conntrack_max on the node")
	r.Connections(79, 100)
	r.Connections(89, 100)
	r.Connections(0, 0)
	got.want(t)
	r.Connections(95, 100)
	if len(got) != 1 {
		t.Errorf("%d Events after it was full again, want one more", len(got))
	}
}

func TestNodePortsThatAreNotReservedAreToldOnce(t *testing.T) {
	for name, of := range map[string]view.Service{
		"a NodePort": {Ports: []view.ServicePort{{NodePort: 30001}, {NodePort: 30002}}}, "a healthCheckNodePort": {HealthCheckPort: 30002},
	} {
		var got events
		r := report.New(toldTo(&got))
		look := func(port uint16) { r.LocalPorts(func(p uint16) bool { return p == port }, "1024 65535") }
		look(30002) // before the cluster is known
		o := anOutcome()
		of.Ref = view.Ref{Namespace: "shop", Name: "other"}
		o.Cluster.Services[of.Ref] = &of
		r.Report(o)
		got.want(t)
		look(30002)
		look(30002)
		if len(got) != 1 || !strings.HasPrefix(got[0], "node1 Warning NodePortsNotReserved: net.ipv4.ip_local_port_range is 1024 65535") ||
			!strings.Contains(got[0], "net.ipv4.ip_local_reserved_ports") {
			t.Errorf("%s: told %q", name, got)
		}
		look(40000)
		if len(got) != 1 {
			t.Errorf("%s: after they were reserved: told %q", name, got)
		}
	}
}

func TestAFamilyThatIsLeftOutIsToldOnce(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	for range 2 {
		r.Sessions(map[string]bgp.State{"tor": {Phase: bgp.Established, Unannounced: []bgp.Unannounced{{Family: addr.IPv6, Err: errors.New("not negotiated")}}}})
	}
	got.want(t, "tor Normal SessionUp: node node1: the session is established",
		"tor Warning FamilyLeft: node node1: IPv6 addresses are not announced: not negotiated")
}

func TestARestartTellsNothingThatWasTrueBefore(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	r.Report(anOutcome())
	r.Owns(map[netip.Addr]api.Ownership{vip: {Interfaces: []string{"eth0"}, Since: time.Now().Add(-time.Hour)}})
	got.want(t)
}

// kept counts what is told, and keeps the last of it.
type kept struct {
	unread
	times    int
	uid      types.UID
	sessions map[string]bgp.State
	paths    map[string]bfd.Status
}

func (k *kept) Sessions(uid types.UID, sessions map[string]bgp.State, paths map[string]bfd.Status) {
	*k = kept{times: k.times + 1, uid: uid, sessions: sessions, paths: paths}
}

// TestNothingIsKeptBeforeItIsKnown: that a process has no sessions yet says nothing of
// those of the one before it.
func TestNothingIsKeptBeforeItIsKnown(t *testing.T) {
	var got events
	var k kept
	c := toldTo(&got)
	c.Objects = &k
	r := report.New(c)
	o := anOutcome()
	o.Cluster.Nodes = map[string]*view.Node{"node1": {Name: "node1", UID: "uid"}}
	r.BFD(map[string]bfd.Status{"tor": {State: bfd.Init}})
	r.Report(o)
	r.Sessions(nil)
	r.BFD(map[string]bfd.Status{"tor": {State: bfd.Up}})
	if k.times > 0 {
		t.Fatalf("told of %v before any session was begun", k.sessions)
	}
	r.Sessions(map[string]bgp.State{})
	if k.times != 1 || k.uid != "uid" || len(k.sessions) != 0 {
		t.Fatalf("told %+v of a node that has no peers", k)
	}
	r.Sessions(map[string]bgp.State{"tor": {Phase: bgp.Established}})
	r.BFD(map[string]bfd.Status{"tor": {State: bfd.Down}})
	if k.times != 3 || k.sessions["tor"].Phase != bgp.Established || k.paths["tor"].State != bfd.Down {
		t.Errorf("told %+v", k)
	}
}

func TestAHealthCheckPortThatIsTaken(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	web, taken := view.Ref{Namespace: "shop", Name: "web"}, errors.New("listen tcp4 0.0.0.0:30871: bind: address already in use")
	r.HealthCheckFailed(web, 30871, taken)
	r.Report(anOutcome())
	r.HealthCheckFailed(web, 30871, taken)
	text := `shop/web Warning FailedToStartServiceHealthcheck: node node1 failed to start healthcheck "shop/web" on port 30871: ` + taken.Error()
	got.want(t, text, text)
}

// TestANodeIsReadyOnceItHasAnnounced: an update must not go on to the next node while the ones before
// cannot read what they are to announce. An API server that goes away later changes nothing.
func TestANodeIsReadyOnceItHasAnnounced(t *testing.T) {
	var got events
	registry := prometheus.NewRegistry()
	c := toldTo(&got)
	c.Metrics = registry
	r := report.New(c)
	awaits := func(text string) {
		t.Helper()
		if err := r.Ready(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("waits for %v; want %q", err, text)
		}
	}
	awaits("the kernel")
	r.Unreached("no answer from 10.96.0.1")
	awaits("10.96.0.1")
	r.Unreached("")
	awaits("the kernel")
	r.Report(anOutcome())
	awaits("the configuration has not been read")
	missing := []problem.Problem{problem.New(problem.Object{Kind: "Node", Name: "node1"}, "KindMissing", "no Community")}
	for range 2 {
		r.Unread(missing)
		r.Report(anOutcome())
	}
	awaits("no Community")
	got.want(t, "node1 Warning KindMissing: no Community")
	r.Unread(nil)
	awaits("the configuration has not been read")
	o := anOutcome()
	o.Announced = true
	r.Report(o)
	if r.Ready() != nil {
		t.Errorf("waits for %v though all is read and announced", r.Ready())
	}
	r.Unread(missing)
	if r.Report(anOutcome()); r.Ready() != nil {
		t.Errorf("waits for %v after it was ready", r.Ready())
	}
}

func TestMetricsAndReadiness(t *testing.T) {
	var got events
	registry := prometheus.NewRegistry()
	c := toldTo(&got)
	c.Metrics = registry
	r := report.New(c)
	if r.Ready() == nil {
		t.Error("ready before anything was applied")
	}
	o := anOutcome()
	o.Missing, o.Err = outcome.Missing{}, errors.New("no kernel")
	for key := range o.Want.Forwarding.Ports {
		o.Missing[key] = &desired.Port{}
	}
	r.Report(o)
	if r.Ready() == nil {
		t.Error("ready though nothing could be applied")
	}
	o = anOutcome()
	o.Problems = []problem.Problem{problem.New(problem.Object{Kind: "BGPPeer", Name: "tor"}, "SecretMissing", "x")}
	o.Announced = true
	r.Report(o)
	r.Changed("Service")
	if r.Ready() != nil {
		t.Error("not ready though everything is applied")
	}
	err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP fairlead_forwarding_ports Service ports whose forwarding is in the kernel.
# TYPE fairlead_forwarding_ports gauge
fairlead_forwarding_ports{ip_family="IPv4"} 1
fairlead_forwarding_ports{ip_family="IPv6"} 0
# HELP fairlead_speaker_apply_failures_total Passes in which not everything could be applied.
# TYPE fairlead_speaker_apply_failures_total counter
fairlead_speaker_apply_failures_total 1
# HELP fairlead_speaker_changes_total Changes of objects in what decisions read.
# TYPE fairlead_speaker_changes_total counter
fairlead_speaker_changes_total{kind="Service"} 1
# HELP fairlead_speaker_problems Objects that do not get what they ask for on this node.
# TYPE fairlead_speaker_problems gauge
fairlead_speaker_problems{kind="BGPPeer",reason="SecretMissing"} 1
`), "fairlead_forwarding_ports", "fairlead_speaker_apply_failures_total", "fairlead_speaker_changes_total", "fairlead_speaker_problems")
	if err != nil {
		t.Error(err)
	}
}
