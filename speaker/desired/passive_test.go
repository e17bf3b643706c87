package desired_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/peering"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// TestPassiveSessionsAreToldApart by their addresses, and have one password for each router: one
// without a password must not be had where another one asks for it.
func TestPassiveSessionsAreToldApart(t *testing.T) {
	mine, another := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8")
	for name, c := range map[string]struct {
		first, second func(*view.BGPPeer)
		refused       string // a part of why the second is; "": it is not
	}{
		"ports mean nothing": {
			func(*view.BGPPeer) {}, func(p *view.BGPPeer) { p.PeerPort = 1179 }, "a sourceAddress of its own",
		},
		"any address of ours": {
			func(*view.BGPPeer) {}, func(p *view.BGPPeer) { p.SourceAddress = mine }, "a sourceAddress of its own",
		},
		"two addresses": {
			func(p *view.BGPPeer) { p.SourceAddress = another }, func(p *view.BGPPeer) { p.SourceAddress = mine }, "",
		},
		"two addresses, one password": {
			func(p *view.BGPPeer) { p.SourceAddress, p.Password = another, "one" },
			func(p *view.BGPPeer) { p.SourceAddress, p.Password = mine, "one" }, "",
		},
		"two addresses, one without a password": {
			func(p *view.BGPPeer) { p.SourceAddress, p.Password = another, "one" },
			func(p *view.BGPPeer) { p.SourceAddress = mine }, "another password",
		},
		"we dial for the second": {
			func(p *view.BGPPeer) { p.Password = "one" },
			func(p *view.BGPPeer) { p.Passive, p.SourceAddress, p.Password = false, mine, "two" }, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := cluster(service(), endpoint("10.0.0.1", "a"))
			first, second := *cluster.BGPPeers["tor"], *cluster.BGPPeers["tor"]
			first.Name, second.Name = "first", "second"
			first.Passive, second.Passive = true, true
			c.first(&first)
			c.second(&second)
			cluster.BGPPeers = map[string]*view.BGPPeer{"first": &first, "second": &second}
			node, problems := fresh(cluster, onNode("a"))
			want := []string{"first", "second"}
			if c.refused != "" {
				want = want[:1]
			}
			if names := slices.Sorted(maps.Keys(node.BGP)); !slices.Equal(names, want) {
				t.Errorf("sessions %v, want %v", names, want)
			}
			told := slices.ContainsFunc(problems, func(p problem.Problem) bool {
				return p.Reason == peering.ReasonDuplicate && p.Object.Name == "second" && strings.Contains(p.Message, c.refused)
			})
			if told != (c.refused != "") {
				t.Errorf("problems %v", problems)
			}
		})
	}
}
