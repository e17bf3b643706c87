package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
)

// runDir is where the router's daemons keep their sockets. They run as a user
// without access to home directories, so it is not in the cache.
const runDir = "/run/" + namespacePrefix

// frrDir is where Debian's package has the daemons.
const frrDir = "/usr/lib/frr"

// Router is an FRR router on the LAN. It takes BGP sessions over either family
// from any address of the nodes' range, helps them restart gracefully, and
// forwards what the client sends to [RoutedRange4] and [RoutedRange6] over up
// to eight of the routes that it learned.
type Router struct {
	*Machine
	procs   processes
	cgroups cgroups
	bfd     bool
}

func (l *Lab) newRouter() *Router {
	return &Router{Machine: newMachine(routerName, routerAddresses(), addr.Families()), procs: l.procs, cgroups: l.cgroups, bfd: l.options.BFD}
}

// wireUp makes the router's network and the client's routes through it.
func (r *Router) wireUp() error {
	if err := joinLAN(r.Name, routerAddresses(), addr.Families()); err != nil {
		return err
	}
	ns := namespaceOf(r.Name)
	err := errors.Join(
		// By ports too, so that the connections of one client spread.
		ns.sysctl("1", "ipv4/ip_forward", "ipv6/conf/all/forwarding",
			"ipv4/fib_multipath_hash_policy", "ipv6/fib_multipath_hash_policy"),
		// A redirect would show the client a way past the router.
		ns.sysctl("0", "ipv4/conf/all/send_redirects", "ipv4/conf/"+uplink+"/send_redirects"),
	)
	if err != nil {
		return err
	}
	return namespaceOf(clientName).links(func(h *netlink.Handle) error {
		return errors.Join(addRoute(h, RoutedRange4(), r.IPv4), addRoute(h, RoutedRange6(), r.IPv6))
	})
}

// start starts FRR and waits until it takes commands. An error has the end of the log of the
// daemon that failed.
func (r *Router) start(ctx context.Context) error {
	if err := r.configure(); err != nil {
		return err
	}
	daemons := []frrDaemon{{name: "zebra", ready: "zserv.api"}, {name: "bgpd", ready: "bgpd.vty"}}
	if r.bfd {
		daemons = append(daemons, frrDaemon{name: "bfdd", ready: "bfdd.vty", args: []string{"--bfdctl=" + r.file("bfdd.sock")}})
	}
	for _, d := range daemons {
		if err := r.startDaemon(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// frrDaemon is one of FRR's programs; it is ready once it has made that socket.
type frrDaemon struct {
	name, ready string
	args        []string
}

func (r *Router) startDaemon(ctx context.Context, d frrDaemon) error {
	command := append([]string{filepath.Join(frrDir, d.name)}, d.args...)
	command = append(command, "--user=frr", "--group=frr", "--vty_socket="+runDir, "--socket="+r.file("zserv.api"),
		"--config_file="+r.file("frr.conf"), "--pid_file="+r.file(d.name+".pid"))
	command = r.cgroups.joining(r.Name, true, command...)
	var started process
	err := namespaceOf(r.Name).do(func() (err error) {
		started, err = r.procs.start(ctx, daemon{name: r.Name + "-" + d.name, command: command})
		return err
	})
	if err != nil {
		return err
	}
	return r.procs.untilReady(ctx, started, func() error {
		_, err := os.Stat(r.file(d.ready))
		return err
	})
}

func (r *Router) file(name string) string { return filepath.Join(runDir, name) }

func (r *Router) configure() error {
	frr, err := user.Lookup("frr")
	if err != nil {
		return fmt.Errorf("the router needs Debian's package frr: %w", err)
	}
	uid, err := strconv.Atoi(frr.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(frr.Gid)
	if err != nil {
		return err
	}
	text, err := render("frr.conf", map[string]any{
		"Dir": runDir, "BFD": r.bfd, "RouterID": r.IPv4,
		"RouterASN": RouterASN, "NodeASN": NodeASN,
		"Nodes4": netip.PrefixFrom(r.IPv4, 24).Masked(), "Nodes6": lanRange6(),
	})
	if err != nil {
		return err
	}
	if err := writeFiles(runDir, map[string][]byte{"frr.conf": text}); err != nil {
		return err
	}
	return errors.Join(os.Chown(runDir, uid, gid), os.Chown(r.file("frr.conf"), uid, gid))
}

// VTYSH gives FRR commands, as at its prompt one after another, and returns
// what it prints; "configure terminal" is one of them. An error has what vtysh said.
func (r *Router) VTYSH(ctx context.Context, commands ...string) (string, error) {
	args := []string{"vtysh", "--vty_socket", runDir}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	return r.Exec(ctx, args...)
}

// Routes are the next hops, sorted, that the router's kernel has for exactly
// this prefix; none without a route. An error is netlink's.
func (r *Router) Routes(prefix netip.Prefix) ([]netip.Addr, error) {
	return r.RoutesIn(unix.RT_TABLE_MAIN, prefix)
}

// RoutesIn is Routes in one of the tables of the router's kernel. An error is netlink's.
func (r *Router) RoutesIn(table int, prefix netip.Prefix) ([]netip.Addr, error) {
	family := unix.AF_INET
	if prefix.Addr().Is6() {
		family = unix.AF_INET6
	}
	var hops []netip.Addr
	err := namespaceOf(r.Name).links(func(h *netlink.Handle) error {
		routes, err := h.RouteListFiltered(family, &netlink.Route{Dst: ipNet(prefix), Table: table}, netlink.RT_FILTER_DST|netlink.RT_FILTER_TABLE)
		if err != nil {
			return err
		}
		for _, route := range routes {
			if gateway, ok := netip.AddrFromSlice(route.Gw); ok {
				hops = append(hops, gateway.Unmap())
			}
			for _, path := range route.MultiPath {
				if gateway, ok := netip.AddrFromSlice(path.Gw); ok {
					hops = append(hops, gateway.Unmap())
				}
			}
		}
		return nil
	})
	slices.SortFunc(hops, netip.Addr.Compare)
	return hops, err
}
