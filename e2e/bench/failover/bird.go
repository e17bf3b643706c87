package failover

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"fairlead.dev/fairlead/e2e/lab"
)

// BIRD is a second router beside FRR, on a port of its own and with a table of the kernel of its
// own. FRR holds each new route for 60 ms; BIRD tells what is left of the time without that.
const (
	birdPort  = 1791
	birdTable = 1791
	birdDir   = "/run/fairlead-bench-bird"
)

// startBIRD runs BIRD until the context ends, and has the nodes speak with it.
func (b *bench) startBIRD(ctx context.Context) error {
	err := b.runDaemon(ctx, birdDir, fmt.Sprintf(`router id %[1]v;
protocol device { }
protocol direct { ipv4; }
protocol kernel {
	kernel table %[2]d;
	merge paths on;
	ipv4 { import none; export where source = RTS_BGP; };
}
protocol bgp nodes {
	local %[3]v port %[4]d as %[5]d;
	neighbor range %[7]v as %[6]d;
	dynamic name "node";
	direct; passive on;
	ipv4 { import all; export none; };
}
`, b.Router.IPv4.Next().Next(), birdTable, b.Router.IPv4, birdPort, lab.RouterASN, lab.NodeASN,
		netip.PrefixFrom(b.Router.IPv4, 24).Masked()), "bird", "-f", "-c", birdDir+"/conf", "-s", birdDir+"/ctl")
	if err != nil {
		return err
	}
	return lab.Until(ctx, func() error { return b.Apply(ctx, b.peer("bird", birdPort)) })
}

// runDaemon runs another routing daemon at the router until the context ends. Its directory has the
// configuration in the file conf, and belongs to FRR's user.
func (b *bench) runDaemon(ctx context.Context, dir, config string, command ...string) error {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "conf"), []byte(config), 0o644)); err != nil {
		return err
	}
	if _, err := b.Router.Exec(ctx, "chown", "-R", "frr:frr", dir); err != nil {
		return err
	}
	go func() {
		if err := b.Router.Run(ctx, lab.Stdio{}, command...); ctx.Err() == nil {
			b.tell("%s ended: %v", command[0], err)
		}
	}()
	return nil
}

// stopBIRD has the nodes forget it.
func (b *bench) stopBIRD(ctx context.Context) error {
	_, err := b.Kubectl(ctx, "delete", "-n", b.namespace, "bgppeers."+b.group, "bird")
	return err
}

// peer is another session of each node with a router at the same address.
func (b *bench) peer(name string, port int) string {
	return b.object(b.peerVersion, "BGPPeer", name,
		fmt.Sprintf("myASN: %d, peerASN: %d, peerAddress: %v, peerPort: %d, holdTime: 9s", lab.NodeASN, lab.RouterASN, b.Router.IPv4, port))
}
