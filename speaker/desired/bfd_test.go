package desired_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestBFD: a peer that names a profile gets a session, over one hop or several, or with iBGP over as
// many as the networks of the node say.
func TestBFD(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddr
	peer := func(name, address, profile string, change func(*view.BGPPeer)) *view.BGPPeer {
		p := &view.BGPPeer{Name: name, MyASN: 64500, PeerASN: 64512, PeerAddress: at(address), PeerPort: 179, BFDProfile: profile}
		if change != nil {
			change(p)
		}
		return p
	}
	ibgp := func(p *view.BGPPeer) { p.PeerASN = p.MyASN }
	c := &view.Cluster{
		Nodes: map[string]*view.Node{"a": {Name: "a"}},
		BFDProfiles: map[string]*view.BFDProfile{
			"fast": {Name: "fast", Transmit: 50 * time.Millisecond, Receive: 60 * time.Millisecond, Multiplier: 4, Passive: true},
			"far":  {Name: "far", Transmit: time.Second, Receive: time.Second, Multiplier: 3, MinTTL: 60},
		},
		BGPPeers: map[string]*view.BGPPeer{
			"near":      peer("near", "192.0.2.1", "fast", func(p *view.BGPPeer) { p.SourceAddress = at("192.0.2.11") }),
			"multihop":  peer("multihop", "192.0.2.2", "fast", func(p *view.BGPPeer) { p.EBGPMultiHop = true }),
			"far":       peer("far", "192.0.2.3", "far", func(p *view.BGPPeer) { p.EBGPMultiHop = true }),
			"inside":    peer("inside", "2001:db8::4", "fast", ibgp),
			"farInside": peer("farInside", "2001:db8::5", "far", ibgp),
			"secured": peer("secured", "2001:db8::6", "far", func(p *view.BGPPeer) {
				ibgp(p)
				p.TTLSecurity = true
			}),
			"nearFar":   peer("nearFar", "192.0.2.6", "far", nil),
			"without":   peer("without", "192.0.2.7", "", nil),
			"missing":   peer("missing", "192.0.2.8", "gone", nil),
			"elsewhere": peer("elsewhere", "192.0.2.9", "fast", func(p *view.BGPPeer) { p.NodeSelectors = []view.Selector{nowhere{}} }),
		},
	}
	fast := desired.BFD{Transmit: 50 * time.Millisecond, Receive: 60 * time.Millisecond, Multiplier: 4, Passive: true}
	far := desired.BFD{Transmit: time.Second, Receive: time.Second, Multiplier: 3}
	to := func(b desired.BFD, peer string, multiHop bool, ttl uint8) desired.BFD {
		b.Peer, b.MultiHop, b.MinTTL = at(peer), multiHop, ttl
		return b
	}
	byNetwork := func(b desired.BFD) desired.BFD {
		b.HopsByNetwork = true
		return b
	}
	near := to(fast, "192.0.2.1", false, 0)
	near.Local = at("192.0.2.11")
	want := map[string]desired.BFD{
		"near": near, "multihop": to(fast, "192.0.2.2", true, 254), "far": to(far, "192.0.2.3", true, 60),
		"inside": byNetwork(to(fast, "2001:db8::4", false, 254)), "farInside": byNetwork(to(far, "2001:db8::5", false, 60)),
		"secured": to(far, "2001:db8::6", false, 0), "nearFar": to(far, "192.0.2.6", false, 0),
	}
	got, _ := fresh(c, desired.Options{Node: "a"})
	if d := cmp.Diff(want, got.BFD, cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Errorf("BFD sessions (-want +got):\n%s", d)
	}
	if len(got.BGP) != 9 {
		t.Errorf("%d BGP sessions: a profile that is missing keeps none from being held", len(got.BGP))
	}
}

// TestOneBFDSession: peers of one router share it, by the profile of the oldest, unless they come from
// addresses of their own; and there is none with a daemon of the node itself.
func TestOneBFDSession(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddr
	peer := func(name, address, profile string, port uint16, created int64) *view.BGPPeer {
		return &view.BGPPeer{
			Name: name, MyASN: 64500, PeerASN: 64512, PeerAddress: at(address), PeerPort: port, BFDProfile: profile, Created: time.Unix(created, 0),
		}
	}
	c := &view.Cluster{
		Nodes: map[string]*view.Node{"a": {Name: "a", Addresses: []netip.Addr{at("192.0.2.11")}}},
		BFDProfiles: map[string]*view.BFDProfile{
			"fast": {Name: "fast", Multiplier: 3}, "slow": {Name: "slow", Multiplier: 9},
		},
		BGPPeers: map[string]*view.BGPPeer{
			"a": peer("a", "192.0.2.1", "fast", 179, 2), "b": peer("b", "192.0.2.1", "slow", 180, 1), "c": peer("c", "192.0.2.1", "fast", 181, 3),
			"itself": peer("itself", "192.0.2.11", "fast", 179, 1), "loopback": peer("loopback", "127.0.0.1", "fast", 179, 1),
		},
	}
	c.BGPPeers["c"].SourceAddress = at("192.0.2.12")
	got, problems := fresh(c, desired.Options{Node: "a"})
	multipliers := map[string]uint8{}
	for name, b := range got.BFD {
		multipliers[name] = b.Multiplier
	}
	if d := cmp.Diff(map[string]uint8{"a": 9, "b": 9, "c": 3}, multipliers); d != "" || len(got.BGP) != 5 {
		t.Errorf("%d sessions, problems %v, BFD multipliers (-want +got):\n%s", len(got.BGP), problems, d)
	}
}

// nowhere matches no node.
type nowhere struct{}

func (nowhere) Matches(map[string]string) bool { return false }
