package bgp

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/desired"
)

// toRouter is a session to the real router from one of this side's addresses.
func toRouter(source netip.Addr) desired.Identity {
	id := desired.Identity{
		MyASN: nodeASN, PeerASN: routerASN, PeerAddress: router4, PeerPort: 179, SourceAddress: source, RouterID: node4,
		HoldTime: longHold, KeepaliveTime: longHold / 3, GracefulRestart: true,
		NextHop4: node4, NextHop6: node6,
	}
	if source.Is6() {
		id.PeerAddress = router6
	} else {
		id.RouterID = source
	}
	return id
}

// neighborLines configure a neighbor that may dial, for both families.
func neighborLines(addr netip.Addr, asn uint32, more ...string) string {
	lines := []string{
		fmt.Sprintf(" neighbor %v remote-as %d", addr, asn),
		fmt.Sprintf(" neighbor %v passive", addr),
	}
	for _, m := range more {
		lines = append(lines, fmt.Sprintf(" neighbor %v %s", addr, m))
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		lines = append(lines, " address-family "+family+" unicast", fmt.Sprintf("  neighbor %v activate", addr), " exit-address-family")
	}
	return strings.Join(lines, "\n") + "\n"
}

// routeUpdates are the changes of the router's kernel's routes from now on, until stop.
func (r *router) routeUpdates() (updates <-chan netlink.RouteUpdate, stop func()) {
	r.t.Helper()
	ns, err := netns.GetFromName(r.ns)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = ns.Close() })
	all, done := make(chan netlink.RouteUpdate, 1000), make(chan struct{})
	if err := netlink.RouteSubscribeWithOptions(all, done, netlink.RouteSubscribeOptions{Namespace: &ns}); err != nil {
		r.t.Fatal(err)
	}
	return all, func() { close(done) }
}

// watchKernel records every route that the router's kernel loses from now on.
func (r *router) watchKernel() (lost func() []netip.Prefix) {
	r.t.Helper()
	updates, stop := r.routeUpdates()
	return func() (gone []netip.Prefix) {
		defer stop()
		const last = "203.0.113.99/32"
		r.must("ip", "-n", r.ns, "route", "add", "blackhole", last)
		r.must("ip", "-n", r.ns, "route", "del", "blackhole", last)
		for update := range updates {
			if update.Type != unix.RTM_DELROUTE || update.Dst == nil {
				continue
			}
			prefix := netip.MustParsePrefix(update.Dst.String())
			if prefix.String() == last {
				return gone
			}
			gone = append(gone, prefix)
		}
		r.t.Fatal("the subscription to routes ended")
		return nil
	}
}

func (r *router) waitForKernel(prefix string, gateways ...string) {
	r.t.Helper()
	slices.Sort(gateways)
	r.waitFor(fmt.Sprintf("the kernel routes %s to %v", prefix, gateways), func() bool {
		have := r.kernel(prefix)
		slices.Sort(have)
		return slices.Equal(have, gateways)
	})
}

// waitForShares waits until the kernel gives two next hops these shares, such as 10.98.0.2=3 and 10.98.0.3=1.
func (r *router) waitForShares(prefix string, shares ...string) {
	r.t.Helper()
	r.waitFor(fmt.Sprintf("%s goes by %v", prefix, shares), func() bool {
		have, unit := r.weights(prefix), 0
		for _, share := range shares {
			gateway, of, _ := strings.Cut(share, "=")
			parts, err := strconv.Atoi(of)
			if err != nil || parts == 0 || have[gateway]%parts != 0 || unit != 0 && have[gateway]/parts != unit {
				return false
			}
			unit = have[gateway] / parts
		}
		return unit > 0 && len(have) == len(shares)
	})
}

// reaches waits until a connection from the router arrives at the addresses of Services.
func (r *router) reaches(prefixes ...string) {
	r.t.Helper()
	for _, p := range prefixes {
		address := netip.MustParsePrefix(p).Addr().String()
		r.must("ip", "addr", "replace", address, "dev", "lo", "nodad")
		r.t.Cleanup(func() { _ = exec.Command("ip", "addr", "del", address, "dev", "lo").Run() })
		service, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { _ = service.Close() })
		r.waitFor("a connection to "+address, func() (reached bool) {
			r.inside(func() {
				conn, err := net.DialTimeout("tcp", service.Addr().String(), time.Second)
				if err == nil {
					_ = conn.Close()
				}
				reached = err == nil
			})
			return reached
		})
	}
}
