package bgp

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
)

// daemonPort is where another daemon of the node listens for us.
const daemonPort = 1179

// daemon starts a BIRD of the node itself, as Calico's is, which has port 179 of the node. It holds a session with the router
// from NODE2, and waits for the speaker of this node at an address: daemon LOOPBACK
func (s *scene) daemon(args []string) {
	at, err := netip.ParseAddr(s.meant(args)[0])
	if err != nil {
		s.fail("%v", err)
	}
	s.setup.daemon = true
	if s.cell.family != "ipv4" {
		linkLocal(s.t) // a BIRD that has none yet when its session begins names its other address alone, for good
	}
	b := &bird{router: &router{t: s.t, dir: s.t.TempDir(), daemon: map[string]*exec.Cmd{}}, id: node4b}
	b.socket = filepath.Join(b.dir, "bird.ctl")
	var imports, exports strings.Builder
	for _, f := range s.families() {
		fmt.Fprintf(&imports, "\t%s { import all; export none; };\n", f.afi)
		fmt.Fprintf(&exports, "\t%s { import none; export where source = RTS_BGP; next hop self; };\n", f.afi)
	}
	b.begin(patientBFD(), fmt.Sprintf(`
protocol bgp uplink {
	local %[1]v as %[2]d;
	neighbor %[3]v as %[4]d;
	connect delay time 1; connect retry time 1; error wait time 1, 2;
%[5]s}
protocol bgp fairlead {
	local %[6]v port %[7]d as %[2]d;
	neighbor %[6]v as %[2]d;
	multihop; passive on; rr client; error wait time 1, 2;
%[8]s}
`, s.neighbour(2), s.asn(), s.local(), routerASN, &exports, at, daemonPort, &imports))
}
