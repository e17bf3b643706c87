package desired_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/peering"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestUnnumbered: a peer by interface is whoever is at the other end of it; while nobody is
// known the session says why, and has no BFD beside it.
func TestUnnumbered(t *testing.T) {
	t.Parallel()
	local, router := netip.MustParseAddr("fe80::2%eth1"), netip.MustParseAddr("fe80::1%eth1")
	over := func(name, eth string) *view.BGPPeer {
		return &view.BGPPeer{Name: name, MyASN: 64500, Interface: eth, PeerPort: 179, BFDProfile: "fast"}
	}
	c := &view.Cluster{
		Nodes:       map[string]*view.Node{"a": {Name: "a"}},
		BFDProfiles: map[string]*view.BFDProfile{"fast": {Name: "fast", Transmit: time.Second, Receive: time.Second, Multiplier: 3}},
		BGPPeers:    map[string]*view.BGPPeer{"tor": over("tor", "eth1"), "twin": over("twin", "eth1"), "left": over("left", "eth2"), "lost": over("lost", "eth3")},
		Adjacent: map[string]view.Adjacency{
			"eth1": {Local: local, Router: router},
			"eth2": {Trouble: "interface eth2 is down"},
			"eth3": {Local: netip.MustParseAddr("fe80::2%eth3")},
			"eth9": {Local: netip.MustParseAddr("fe80::2%eth9"), Router: netip.MustParseAddr("fe80::1%eth9")},
		},
	}
	node, problems := fresh(c, desired.Options{Node: "a"})
	if id := node.BGP["tor"].Identity; id.PeerAddress != router || id.SourceAddress != local || id.Interface != "eth1" || id.NoRouter != "" {
		t.Errorf("tor: %+v", id)
	}
	if id := node.BGP["left"].Identity; id.PeerAddress.IsValid() || id.NoRouter != "interface eth2 is down" {
		t.Errorf("left: %+v", id)
	}
	if id := node.BGP["lost"].Identity; id.PeerAddress.IsValid() || id.SourceAddress.IsValid() || !strings.Contains(id.NoRouter, "no router advertises itself on interface eth3") {
		t.Errorf("lost: %+v", id)
	}
	if b := node.BFD["tor"]; len(node.BFD) != 1 || b.Peer != router || b.Local != local || b.MultiHop {
		t.Errorf("BFD: %+v", node.BFD)
	}
	if want := []string{"eth1", "eth2", "eth3"}; !slices.Equal(node.Unnumbered, want) {
		t.Errorf("looks for routers over %v, want %v", node.Unnumbered, want)
	}
	if len(node.BGP) != 3 || len(problems) != 1 || problems[0].Reason != peering.ReasonDuplicate || problems[0].Object.Name != "twin" {
		t.Errorf("%d sessions, problems %v", len(node.BGP), problems)
	}
}
