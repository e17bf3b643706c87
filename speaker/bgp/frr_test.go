package bgp

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// router is a real FRR: zebra and bgpd in a network namespace of their own,
// joined to the tests' namespace by a veth pair. The router is 10.98.0.1 and
// fd98::1; this side has 10.98.0.2 to .4 and fd98::2 to ::4.
type router struct {
	t      testing.TB
	ns     string
	dir    string
	config string // of FRR's bgpd
	daemon map[string]*exec.Cmd

	routing  *netlink.Handle       // of its kernel
	protocol netlink.RouteProtocol // of its daemon's routes there
}

const (
	routerASN = 64999
	nodeASN   = 64512
)

var (
	router4 = netip.MustParseAddr("10.98.0.1")
	router6 = netip.MustParseAddr("fd98::1")
	node4   = netip.MustParseAddr("10.98.0.2")
	node4b  = netip.MustParseAddr("10.98.0.3")
	node6   = netip.MustParseAddr("fd98::2")
)

// plugIn makes the router's namespace and the cable to it.
func plugIn(t testing.TB, dir string) *router {
	t.Helper()
	r := &router{t: t, ns: fmt.Sprintf("flbgp%d", os.Getpid()), dir: dir, daemon: map[string]*exec.Cmd{}, protocol: unix.RTPROT_BGP}
	r.addNamespace(r.ns)
	t.Cleanup(r.stop)
	// A link-local address that comes late has FRR look at its next hops anew.
	r.must("ip", "netns", "exec", r.ns, "sysctl", "-qw", "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")
	r.ip("",
		"link add flbgp0 type veth peer name tonode netns "+r.ns,
		"addr add 10.98.0.2/24 dev flbgp0",
		"addr add 10.98.0.3/24 dev flbgp0",
		"addr add fd98::2/64 dev flbgp0 nodad",
		"addr add fd98::3/64 dev flbgp0 nodad",
		"link set flbgp0 up",
	)
	r.ip(r.ns,
		"link set lo up",
		"addr add 10.98.0.1/24 dev tonode",
		"addr add fd98::1/64 dev tonode nodad",
		"link set tonode up",
	)
	ns, err := netns.GetFromName(r.ns)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if r.routing, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.routing.Close)
	return r
}

// startRouter runs FRR with the given lines of "router bgp 64999".
func startRouter(t testing.TB, bgp string) *router {
	t.Helper()
	r := newFRR(t)
	r.run(bgp)
	return r
}

// newFRR makes the namespace of an FRR and the cable to it.
func newFRR(t testing.TB) *router {
	t.Helper()
	if !netlab.IsIsolated() {
		t.Skip("needs CAP_SYS_ADMIN and CAP_NET_ADMIN for network namespaces")
	}
	for _, binary := range []string{"/usr/lib/frr/zebra", "/usr/lib/frr/bgpd", "/usr/sbin/ip"} {
		if _, err := os.Stat(binary); err != nil {
			t.Skipf("needs %s (Debian packages frr and iproute2)", binary)
		}
	}
	return plugIn(t, frrDir(t))
}

// run starts its daemons, bgpd with these arguments besides.
func (r *router) run(bgp string, more ...string) {
	r.t.Helper()
	r.start("zebra", "", "--v6-rr-semantics") // else it removes a route of IPv6 to replace it
	r.waitFor("zebra", func() bool { return r.vty("zebra", "show version") != "" })
	// What it logs is shown where a test fails, and why a session ended is said to debuggers alone.
	r.config = fmt.Sprintf("debug bgp neighbor-events\ndebug bgp graceful-restart\nfrr defaults traditional\nrouter bgp %d\n bgp router-id 10.98.0.1\n no bgp ebgp-requires-policy\n%s\n", routerASN, bgp)
	r.start("bgpd", r.config, more...)
	r.waitFor("bgpd", func() bool { return strings.Contains(r.vty("bgpd", "show bgp summary json"), "{") })
}

// frrDir makes a directory that the user frr may use: the daemons drop root.
func frrDir(t testing.TB) string {
	t.Helper()
	frr, err := user.Lookup("frr")
	if err != nil {
		t.Skipf("needs the user frr (Debian package frr): %v", err)
	}
	// Not below t.TempDir, which nobody but root may enter.
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("fairlead-frr-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	uid, _ := strconv.Atoi(frr.Uid)
	gid, _ := strconv.Atoi(frr.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (r *router) start(name, config string, more ...string) {
	r.t.Helper()
	file := filepath.Join(r.dir, name+".conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		r.t.Fatal(err)
	}
	args := []string{
		"netns", "exec", r.ns, "/usr/lib/frr/" + name, "--vty_socket", r.dir, "-z", r.dir + "/zserv",
		"-i", filepath.Join(r.dir, name+".pid"), "-f", file, "-P", "0", "--log", "file:" + filepath.Join(r.dir, name+".log"),
	}
	r.daemon[name] = exec.Command("ip", append(args, more...)...)
	r.daemon[name].Stderr = r.t.Output()
	if err := r.daemon[name].Start(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *router) kill(name string) {
	if d := r.daemon[name]; d != nil {
		_ = d.Process.Kill()
		_ = d.Wait()
		delete(r.daemon, name)
	}
}

func (r *router) stop() {
	if r.t.Failed() {
		for _, name := range []string{"zebra", "bfdd", "bgpd"} {
			log, _ := os.ReadFile(filepath.Join(r.dir, name+".log"))
			r.t.Logf("%s:\n%s", name, log)
		}
		if ns, err := netns.GetFromName(r.ns); err == nil {
			_ = netlab.Inside(ns, func() { netlab.KeepState(r.t, "router") }) // without it, its logs are left
			_ = ns.Close()
		}
	}
	r.kill("bgpd")
	r.kill("bfdd")
	r.kill("zebra")
	_ = exec.Command("ip", "link", "del", "flbgp0").Run()
	_ = exec.Command("ip", "netns", "del", r.ns).Run()
}

// addNamespace makes a network namespace. One with its name was left by a test that was killed, of
// whose process this one has the number.
func (r *router) addNamespace(name string) {
	r.t.Helper()
	_ = exec.Command("ip", "netns", "del", name).Run()
	r.must("ip", "netns", "add", name)
}

// ip has iproute2 do all of this in a network namespace, "" being the tests' own, in one process.
func (r *router) ip(ns string, commands ...string) {
	r.t.Helper()
	args := []string{"-batch", "-"}
	if ns != "" {
		args = append([]string{"-n", ns}, args...)
	}
	batch := exec.Command("ip", args...)
	batch.Stdin = strings.NewReader(strings.Join(commands, "\n"))
	if out, err := batch.CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %v\n%s", commands, err, out)
	}
}

func (r *router) must(args ...string) {
	r.t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// vty gives one of FRR's daemons commands as vtysh does, without vtysh's process, which knows the commands of all daemons: each
// command ends with a zero, each answer with three and a status. Without the daemon it answers "".
func (r *router) vty(daemon string, commands ...string) string {
	conn, err := net.DialTimeout("unix", filepath.Join(r.dir, daemon+".vty"), patience)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	var said strings.Builder
	answers := bufio.NewReader(conn)
	for _, command := range append([]string{"enable"}, commands...) {
		if _, err := conn.Write([]byte(command + "\x00")); err != nil {
			return ""
		}
		answer, err := answers.ReadString(0)
		if err != nil {
			return ""
		}
		if _, err := answers.Discard(len("\x00\x00") + 1); err != nil {
			return ""
		}
		said.WriteString(strings.TrimSuffix(answer, "\x00"))
	}
	return said.String()
}

func (r *router) waitFor(what string, condition func() bool) {
	r.t.Helper()
	waitFor(r.t, what, condition)
}

// patience is more than what does happen takes on a busy machine. It is less than the
// time for which routers keep the routes of a node that restarts, so that whoever waits
// for a route to go sees that it was not kept.
const patience = restartTime * 3 / 4

// waitFor looks ever more rarely: most conditions ask a program, which on a busy machine
// keeps from happening what is waited for.
func waitFor(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for began := time.Now(); !condition(); {
		waited := time.Since(began)
		if waited > patience {
			t.Fatalf("after %v still not: %s", patience, what)
		}
		time.Sleep(min(max(waited/5, 2*time.Millisecond), 250*time.Millisecond))
	}
}

// kernel lists the gateways of a prefix in the router's kernel.
func (r *router) kernel(prefix string) (gateways []string) {
	r.t.Helper()
	for gateway := range r.weights(prefix) {
		gateways = append(gateways, gateway)
	}
	return gateways
}

// weights are those of the gateways that the routing daemon gave a prefix in the router's kernel.
func (r *router) weights(prefix string) map[string]int {
	r.t.Helper()
	dst, err := netlink.ParseIPNet(prefix)
	if err != nil {
		r.t.Fatal(err)
	}
	family := netlink.FAMILY_V4
	if strings.Contains(prefix, ":") {
		family = netlink.FAMILY_V6
	}
	var routes []netlink.Route
	for err = netlink.ErrDumpInterrupted; errors.Is(err, netlink.ErrDumpInterrupted); { // they changed meanwhile
		routes, err = r.routing.RouteListFiltered(family, &netlink.Route{Dst: dst, Protocol: r.protocol}, netlink.RT_FILTER_DST|netlink.RT_FILTER_PROTOCOL)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	weights := map[string]int{}
	for _, route := range routes {
		for _, hop := range append(route.MultiPath, &netlink.NexthopInfo{Gw: route.Gw, Via: route.Via}) {
			if via, is := hop.Via.(*netlink.Via); is { // of the other family
				hop.Gw = via.Addr
			}
			if hop.Gw != nil {
				weights[hop.Gw.String()] = hop.Hops + 1
			}
		}
	}
	return weights
}
