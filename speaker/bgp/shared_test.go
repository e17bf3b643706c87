package bgp

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
)

// onNode is a BIRD of the node itself, as Calico's is, which holds the session with the router.
// Its part for us is that with the daemon of the same node, on a port of its own.
func onNode(t *testing.T, r *router, ours netip.Addr) *bird {
	t.Helper()
	b := &bird{router: &router{t: t, dir: t.TempDir(), daemon: r.daemon}}
	b.socket = filepath.Join(b.dir, "bird.ctl")
	b.begin(bfdInterval, bfdMultiplier, fmt.Sprintf(`
protocol bgp uplink {
	local 10.98.0.2 as %[1]d;
	neighbor 10.98.0.1 as %[2]d;
	connect delay time 1; connect retry time 1; error wait time 1, 2;
	ipv4 { import none; export where source = RTS_BGP; next hop self; };
}
protocol bgp fairlead {
	local %[3]v port 1179 as %[1]d;
	neighbor %[3]v as %[1]d;
	multihop; passive on; error wait time 1, 2;
	ipv4 { import all; export none; };
}
`, nodeASN, routerASN, ours))
	return b
}

// TestADaemonOnTheNodeTellsTheRouter: where another daemon of the node has the session with the
// router, ours tells that one, over loopback or the node's own address, and it tells the router.
func TestADaemonOnTheNodeTellsTheRouter(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"127.0.0.1", "10.98.0.2"} {
		t.Run(at, func(t *testing.T) {
			if netlab.Apart(t) {
				return
			}
			r := startRouter(t, neighborLines(node4, nodeASN))
			onNode(t, r, netip.MustParseAddr(at))
			s := newSpeaker(t)
			id := toRouter(node4)
			id.PeerAddress, id.SourceAddress, id.PeerPort = netip.MustParseAddr(at), netip.Addr{}, 1179
			id.PeerASN = id.MyASN
			want := map[string]desired.Session{"bird": {Identity: id, Routes: prefixes(vip)}}
			mustApply(t, s, want)
			r.waitForKernel(vip, "10.98.0.2")
			mustApply(t, s, map[string]desired.Session{"bird": {Identity: id, Routes: prefixes(vip2)}})
			r.waitForKernel(vip2, "10.98.0.2")
			r.waitForKernel(vip)
		})
	}
}
