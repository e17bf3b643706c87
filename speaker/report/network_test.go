package report_test

import (
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/speaker/report"
)

func TestACutOffNodeIsTold(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	cut := report.Network{CutOff: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fe80::1")}}
	r.Isolation(cut) // before the cluster is known
	r.Report(anOutcome())
	r.Isolation(cut)
	got.want(t, "node1 Warning CutOff: node node1 answers for no address: it hears no more than half of the nodes that it heard, and its gateway "+
		"192.0.2.1, fe80::1 does not answer; see to its cable, its switch and its VLAN; it goes on by itself once it hears the nodes or the gateway")
	r.Isolation(report.Network{})
	got.want(t)
}

func TestALinkThatIsCutOffIsTold(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	r.Report(anOutcome())
	r.Isolation(report.Network{Links: []string{"eth1", "eth2"}})
	got.want(t, "node1 Warning LinkCutOff: node node1 hears no other node over eth1, eth2, though others hear each other there: what it would answer for there "+
		"is left to them where they can; see to the cable, the VLAN and the port of the switch; it goes on by itself once it hears a node")
	r.Isolation(report.Network{})
	got.want(t)
}

func TestANodeThatFlapsIsTold(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	r.Report(anOutcome())
	r.Isolation(report.Network{Damped: []string{"node1", "node2"}})
	got.want(t, "node1 Warning Damped: node node1 fell silent again and again, and other nodes that can answer for an address come before it until it has been "+
		"there for a while; see to its cable, the port of the switch, its power, and the log of its container pulse")
	r.Isolation(report.Network{Damped: []string{"node2"}}) // which says so itself
	got.want(t)
}

func TestAnAddressThatIsLeftToAnotherNodeIsToldOnItsService(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	r.Report(anOutcome())
	r.Isolation(report.Network{Left: map[netip.Addr]string{vip: "node2"}})
	got.want(t, "shop/web Warning AddressLeft: 192.0.2.10 is node node1's to answer for as far as that knows, and is left to node node2, "+
		"which answers for it: see whether both reach the API server, and whether UDP port 7475 is open between them")
	r.Isolation(report.Network{})
	got.want(t, "shop/web Normal AddressAgreed: node node1 agrees with the others on who answers for the addresses of this Service")
}
