package report_test

import (
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/report"
)

// written keeps the addresses that were written last.
type written struct {
	unread
	addresses map[netip.Addr]report.Address
}

func (k written) Addresses(_ types.UID, addresses map[netip.Addr]report.Address) {
	clear(k.addresses)
	maps.Copy(k.addresses, addresses)
}

// TestWhatBreaksLayer2IsToldOnTheNode: once, in the condition of the addresses that it is in the way of,
// and until it is over.
func TestWhatBreaksLayer2IsToldOnTheNode(t *testing.T) {
	var got events
	register, registry := written{addresses: map[netip.Addr]report.Address{}}, prometheus.NewRegistry()
	c := toldTo(&got)
	c.Objects, c.Metrics = register, registry
	r := report.New(c)
	o := anOutcome()
	o.Cluster.Nodes = map[string]*view.Node{"node1": {}}
	r.Report(o)
	r.Owns(map[netip.Addr]api.Ownership{vip: {Interfaces: []string{"eth1"}}})
	got = nil
	strict := hostchecks.Obstacle{Kind: hostchecks.ReversePath, Interface: "eth1", Via: "eth0"}
	wireless := hostchecks.Obstacle{Kind: hostchecks.Selective, Interface: "eth1"}
	held := hostchecks.Obstacle{Kind: hostchecks.Held, Interface: "eth0", Via: "kube-ipvs0"}
	const words = "node node1 drops what clients beyond the network send to addresses on eth1: rp_filter is strict there, and answers to them leave by eth0; " +
		"set the sysctl net.ipv4.conf.eth1.rp_filter=2 (and net.ipv4.conf.all.rp_filter to 0 or 2), or give eth1 the way back"
	r.Obstacles(map[hostchecks.Obstacle][]netip.Addr{strict: {vip}})
	got.want(t, "node1 Warning ReversePathFiltered: "+words)
	first := register.addresses[vip].Obstruction
	if first == nil || first.Reason != report.ReasonReversePathFiltered || first.Message != words || time.Since(first.Since) > time.Minute {
		t.Fatalf("the register was told %+v", first)
	}
	r.Obstacles(map[hostchecks.Obstacle][]netip.Addr{strict: {vip}, wireless: {vip}, held: {vip6}})
	got.want(t, "node1 Warning AddressOnInterface: the kernel of node node1 answers on eth0 for addresses that kube-ipvs0 has and that are answered for otherwise: "+
		"clients may reach either; take them from kube-ipvs0 (kube-proxy in IPVS mode needs strictARP), or for IPv4 set the sysctls "+
		"net.ipv4.conf.all.arp_ignore=1 and net.ipv4.conf.all.arp_announce=2",
		"node1 Warning PromiscuousModeMissing: node node1 answers on eth1, which is wireless and not promiscuous: "+
			"its firmware may keep questions for the addresses to itself; ip link set eth1 promisc on")
	both := register.addresses[vip].Obstruction
	if both.Reason != report.ReasonReversePathFiltered || !strings.HasPrefix(both.Message, words+"; node node1 answers on eth1") || !both.Since.Equal(first.Since) {
		t.Errorf("the register was told %+v", both)
	}
	if _, there := register.addresses[vip6]; there {
		t.Error("an address of another node is told as this one's")
	}
	const name = "fairlead_layer2_obstructed_addresses"
	want := "# HELP " + name + " Addresses that something on this node is in the way of, or that its kernel answers for besides the node that is to.\n# TYPE " + name + " gauge\n" +
		name + "{reason=\"AddressOnInterface\"} 1\n" + name + "{reason=\"PromiscuousModeMissing\"} 1\n" + name + "{reason=\"ReversePathFiltered\"} 1\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
	// Which addresses it is about is no news.
	r.Obstacles(map[hostchecks.Obstacle][]netip.Addr{held: {vip, vip6}})
	r.Obstacles(nil)
	got.want(t)
	if register.addresses[vip].Obstruction != nil {
		t.Errorf("never over: %+v", register.addresses[vip].Obstruction)
	}
	r.Obstacles(map[hostchecks.Obstacle][]netip.Addr{strict: {vip}})
	got.want(t, "node1 Warning ReversePathFiltered: "+words)
}
