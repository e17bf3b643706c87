package verify_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// TestPeersOfOneRouter: the oldest has the session, whatever its name, and the others are told
// which node has it with whom.
func TestPeersOfOneRouter(t *testing.T) {
	t.Parallel()
	missing := problem.New(problem.Object{Kind: "BGPPeer", Name: "b"}, "SecretMissing", "")
	const same = `is the same router 192.0.2.1:179 on node n1: delete one of the two, or keep them apart by nodeSelectors`
	for name, test := range map[string]struct {
		change func(a, b *view.BGPPeer) // b is the older one
		want   []string
	}{
		"the younger":            {func(*view.BGPPeer, *view.BGPPeer) {}, []string{`BGPPeer/a: PeerDuplicate: BGPPeer "b" ` + same}},
		"the later by name":      {func(a, b *view.BGPPeer) { b.Created = a.Created }, []string{`BGPPeer/b: PeerDuplicate: BGPPeer "a" ` + same}},
		"another port":           {func(a, _ *view.BGPPeer) { a.PeerPort = 1179 }, nil},
		"an older one of no use": {func(_, b *view.BGPPeer) { b.Unusable = &missing }, nil},
		"on no node in common":   {func(a, _ *view.BGPPeer) { a.NodeSelectors = []view.Selector{labelled("nowhere")} }, nil},
		"waited for by any port": {func(a, b *view.BGPPeer) { a.Passive, b.Passive, a.PeerPort = true, true, 1179 }, []string{
			`BGPPeer/a: PeerDuplicate: BGPPeer "b" waits for connections of 192.0.2.1 on node n1 as well, and nothing tells for which of both one is: ` +
				`delete one of the two, keep them apart by nodeSelectors, or give each a sourceAddress of its own`,
		}},
		"waited for at two addresses with two passwords": {func(a, b *view.BGPPeer) {
			a.Passive, b.Passive, b.Password = true, true, "one"
			a.SourceAddress, b.SourceAddress = netip.MustParseAddr("192.0.2.8"), netip.MustParseAddr("192.0.2.9")
		}, []string{
			`BGPPeer/a: PeerDuplicate: BGPPeer "b" waits for connections of 192.0.2.1 on node n1 with another password, and the kernel knows one of each router: give both the same`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := peer("a", "192.0.2.1", 179), peer("b", "192.0.2.1", 179)
			a.Created, b.Created = time.Unix(2, 0), time.Unix(1, 0)
			test.change(a, b)
			c := &view.Cluster{
				Nodes:    map[string]*view.Node{"n2": {Name: "n2"}, "n1": {Name: "n1"}},
				BGPPeers: map[string]*view.BGPPeer{"a": a, "b": b},

				BGPAdvertisements: map[string]*view.BGPAdvertisement{"all": {Name: "all"}},
			}
			if d := cmp.Diff(test.want, told(c)); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

// told are the problems of a cluster.
func told(c *view.Cluster) []string {
	var found []string
	for _, p := range check(c) {
		found = append(found, p.String())
	}
	return found
}
