package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
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
	if err := errors.Join(os.RemoveAll(birdDir), os.MkdirAll(birdDir, 0o755)); err != nil {
		return err
	}
	config := filepath.Join(birdDir, "bird.conf")
	err := os.WriteFile(config, fmt.Appendf(nil, `router id %[1]v;
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
		netip.PrefixFrom(b.Router.IPv4, 24).Masked()), 0o644)
	if err != nil {
		return err
	}
	go func() {
		err := b.Router.Run(ctx, lab.Stdio{}, "bird", "-f", "-c", config, "-s", filepath.Join(birdDir, "ctl"))
		if ctx.Err() == nil {
			b.tell("BIRD ended: %v", err)
		}
	}()
	return product.Until(ctx, func() error { return b.Apply(ctx, b.peer("bird", birdPort)) })
}

// stopBIRD has the nodes forget it.
func (b *bench) stopBIRD(ctx context.Context) error {
	_, err := b.Kubectl(ctx, "delete", "-n", b.namespace, b.peers, "bird")
	return err
}

// peer is another session of each node with a router at the same address.
func (b *bench) peer(name string, port int) string {
	return fmt.Sprintf(`
apiVersion: %s
kind: BGPPeer
metadata: {name: %s%s}
spec: {myASN: %d, peerASN: %d, peerAddress: %v, peerPort: %d, holdTime: 9s}
`, b.peerVersion, name, b.within, lab.NodeASN, lab.RouterASN, b.Router.IPv4, port)
}

// tables are those of the routers' routes: FRR's, BIRD's.
func tables() [2]int { return [2]int{unix.RT_TABLE_MAIN, birdTable} }

// both waits until the next hops of the address are as wanted at both routers, and tells when
// they were.
func (b *bench) both(ctx context.Context, vip netip.Addr, what string, wanted func(hops []netip.Addr) bool) (at [2]time.Time, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, fmt.Errorf("%s: not within 2 minutes", what))
	defer cancel()
	for {
		for i, table := range tables() {
			if !at[i].IsZero() {
				continue
			}
			hops, err := b.Router.RoutesIn(table, netip.PrefixFrom(vip, vip.BitLen()))
			if err != nil {
				return at, err
			}
			if wanted(hops) {
				at[i] = time.Now()
			}
		}
		if !at[0].IsZero() && !at[1].IsZero() {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return at, fmt.Errorf("%w; FRR: %t, BIRD: %t", context.Cause(ctx), !at[0].IsZero(), !at[1].IsZero())
		case <-time.After(lookEvery):
		}
	}
}
