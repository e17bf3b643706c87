package report_test

import (
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/report"
)

func TestAContestedAddressIsToldOnItsService(t *testing.T) {
	var got events
	registry := prometheus.NewRegistry()
	c := toldTo(&got)
	c.Metrics = registry
	r := report.New(c)
	counts := func(when string, want int) {
		t.Helper()
		if n, err := testutil.GatherAndCount(registry, "fairlead_speaker_problems"); err != nil || n != want {
			t.Errorf("%s: %d problems, want %d; %v", when, n, want, err)
		}
	}
	contested := map[netip.Addr]api.Contest{vip: {Station: "02:00:00:00:00:07", Interface: "eth0"}}
	r.Contests(contested, nil) // before its Service is known
	got.want(t)
	for range 2 {
		r.Report(anOutcome())
		r.Contests(contested, nil)
	}
	got.want(t, "shop/web Warning AddressContested: 192.0.2.10, which node node1 answers for, is also claimed by the station "+
		"02:00:00:00:00:07 on eth0, so that clients may reach that one: take the address from that machine, or out of the pool")
	counts("contested", 1)
	r.Contests(map[netip.Addr]api.Contest{vip: {Station: "02:00:00:00:00:07", Interface: "eth0", Yielded: true}}, nil)
	got.want(t, "shop/web Warning AddressContested: 192.0.2.10, which node node1 answers for, is also claimed by the station 02:00:00:00:00:07 on eth0, "+
		"which announces it again and again, as a node of another cluster does, and has the lower MAC address, so that clients reach that one: "+
		"take the address from that machine, or out of the pool")
	r.Contests(map[netip.Addr]api.Contest{vip6: {Station: "02:00:00:00:00:08", Interface: "eth1", Withheld: true}}, nil)
	got.want(t, "shop/web Warning AddressTaken: node node1 does not answer for 2001:db8::10: the station 02:00:00:00:00:08 on eth1 "+
		"has it already; take the address from that machine, or out of the pool; it is tried again every 5 seconds")
	counts("taken", 1)
	for holder, says := range map[string]string{
		"node1": "interface eth1 of this node", "node2": "an interface of node node2, which replied on eth1,",
	} {
		r.Contests(map[netip.Addr]api.Contest{vip6: {Station: "02:00:00:00:00:08", Node: holder, Interface: "eth1", Withheld: true}}, nil)
		got.want(t, "shop/web Warning AddressTaken: node node1 does not answer for 2001:db8::10: "+says+" has it already, as a virtual IP of "+
			"keepalived or kube-vip or as a second address; take the address from that interface, or out of the pool; it is tried again every 5 seconds")
	}
	r.Contests(nil, nil)
	got.want(t, "shop/web Normal AddressUncontested: node node1 hears no other station claim the addresses of this Service any more")
	counts("over", 0)
}

// TestADoubtedAddressIsToldOnItsService: whoever answers, and what to do about it.
func TestADoubtedAddressIsToldOnItsService(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	r.Report(anOutcome())
	const asked = "node node1 asked for 192.0.2.10 on eth0, and "
	const silence = "see whether an interface there has the address: kube-proxy in IPVS mode needs strictARP, others the sysctls arp_ignore=1 and arp_announce=2"
	for _, c := range []struct {
		found api.Doubt
		want  string
	}{
		{
			api.Doubt{Interface: "eth0"},
			"AddressUnanswered: " + asked + "node node2, which is to answer, was not heard: clients may not reach the address either; " +
				"see whether a switch or a hypervisor between them drops frames for addresses that it did not assign, " +
				"or whether an interface there is wireless and not promiscuous",
		},
		{
			api.Doubt{Node: "node3", Station: "02:00:00:00:00:07", Interface: "eth0"},
			"AddressAnsweredTwice: " + asked + "node node3 (02:00:00:00:00:07) answered, while node node2 is to: clients may reach either; " + silence,
		},
		{
			api.Doubt{Node: "node3", Station: "02:00:00:00:00:07", Interface: "eth0", Alone: true},
			"AddressAnsweredElsewhere: " + asked + "node node3 (02:00:00:00:00:07) answered, while node node2, which is to, was not heard: " +
				"clients reach the wrong one; " + silence,
		},
		{
			api.Doubt{Node: "node1", Station: "02:00:00:00:00:01", Interface: "kube-ipvs0"},
			"AddressAnsweredTwice: the kernel of node node1 answers for 192.0.2.10, which is on its interface kube-ipvs0, while node node2 is to: " +
				"clients may reach either; " + silence,
		},
		{
			api.Doubt{Station: "02:00:00:00:00:08", Interface: "eth0"},
			"AddressAnsweredTwice: " + asked + "the station 02:00:00:00:00:08, which is no node's, answered, while node node2 is to: " +
				"clients may reach either; take the address from that machine, or out of the pool",
		},
	} {
		c.found.Owner = "node2"
		r.Contests(nil, map[netip.Addr]api.Doubt{vip: c.found})
		got.want(t, "shop/web Warning "+c.want)
	}
	// The contest of another address is another affair.
	contested := map[netip.Addr]api.Contest{vip6: {Station: "02:00:00:00:00:08", Interface: "eth1"}}
	r.Contests(contested, nil)
	got.want(t, "shop/web Warning AddressContested: 2001:db8::10, which node node1 answers for, is also claimed by the station 02:00:00:00:00:08 on eth1, "+
		"so that clients may reach that one: take the address from that machine, or out of the pool",
		"shop/web Normal AddressAnswered: node node1 finds the addresses of this Service answered for as they should be, or has no more to do with them")
}

func TestAnAddressThatNobodyCanAnswerForIsToldOnItsService(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	r.Report(anOutcome())
	r.Contests(nil, map[netip.Addr]api.Doubt{vip: {}})
	got.want(t, "shop/web Warning AddressUnanswered: 192.0.2.10 is answered for by nobody: the nodes that may have none of the interfaces "+
		"that an L2Advertisement names, or none that is up and on the network of the address, or lack its rules in the kernel; "+
		"see spec.interfaces there and fairlead_pulse_unable_addresses")
}
