package bgp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// router is a real FRR: zebra and bgpd in a network namespace of their own,
// joined to the tests' namespace by a veth pair. The router is 10.98.0.1 and
// fd98::1; this side has 10.98.0.2 to .4 and fd98::2 to ::4.
type router struct {
	t      testing.TB
	ns     string
	dir    string
	proto  string // of its routes in the kernel; empty: bgp
	config string // of FRR's bgpd
	daemon map[string]*exec.Cmd
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
	r := &router{t: t, ns: fmt.Sprintf("flbgp%d", os.Getpid()), dir: dir, daemon: map[string]*exec.Cmd{}}
	r.addNamespace(r.ns)
	t.Cleanup(r.stop)
	for _, command := range []string{
		// A link-local address that comes late has FRR look at its next hops anew.
		"ip netns exec " + r.ns + " sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0",
		"ip link add flbgp0 type veth peer name tonode netns " + r.ns,
		"ip addr add 10.98.0.2/24 dev flbgp0",
		"ip addr add 10.98.0.3/24 dev flbgp0",
		"ip addr add fd98::2/64 dev flbgp0 nodad",
		"ip addr add fd98::3/64 dev flbgp0 nodad",
		"ip link set flbgp0 up",
		"ip -n " + r.ns + " link set lo up",
		"ip -n " + r.ns + " addr add 10.98.0.1/24 dev tonode",
		"ip -n " + r.ns + " addr add fd98::1/64 dev tonode nodad",
		"ip -n " + r.ns + " link set tonode up",
	} {
		r.must(strings.Fields(command)...)
	}
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
	for _, binary := range []string{"/usr/lib/frr/zebra", "/usr/lib/frr/bgpd", "/usr/bin/vtysh", "/usr/sbin/ip"} {
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
	r.waitFor("zebra", func() bool { return r.vty("show version") != "" })
	// What it logs is shown where a test fails, and why a session ended is said to debuggers alone.
	r.config = fmt.Sprintf("debug bgp neighbor-events\ndebug bgp graceful-restart\nfrr defaults traditional\nrouter bgp %d\n bgp router-id 10.98.0.1\n no bgp ebgp-requires-policy\n%s\n", routerASN, bgp)
	r.start("bgpd", r.config, more...)
	r.waitFor("bgpd", func() bool { return strings.Contains(r.vty("show bgp summary json"), "{") })
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

func (r *router) must(args ...string) {
	r.t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

func (r *router) vty(commands ...string) string {
	args := []string{"--vty_socket", r.dir}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	var out bytes.Buffer
	cmd := exec.Command("/usr/bin/vtysh", args...)
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return ""
	}
	return out.String()
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
func (r *router) kernel(prefix string) []string {
	r.t.Helper()
	return r.routes(prefix, cmp.Or(r.proto, "bgp"))
}

// routes lists the gateways that a routing daemon gave a prefix.
func (r *router) routes(prefix, daemon string) []string {
	r.t.Helper()
	family := "-4"
	if strings.Contains(prefix, ":") {
		family = "-6"
	}
	out, err := exec.Command("ip", "-n", r.ns, family, "-j", "route", "show", prefix, "proto", daemon).Output()
	if err != nil {
		r.t.Fatal(err)
	}
	var routes []struct {
		Gateway string `json:"gateway"`
		Via     struct {
			Host string `json:"host"` // of the other family
		} `json:"via"`
		NextHops []struct {
			Gateway string `json:"gateway"`
		} `json:"nexthops"`
	}
	if err := json.Unmarshal(out, &routes); err != nil {
		r.t.Fatalf("%v in %q", err, out)
	}
	var gateways []string
	for _, route := range routes {
		if route.Gateway != "" {
			gateways = append(gateways, route.Gateway)
		}
		if route.Via.Host != "" {
			gateways = append(gateways, route.Via.Host)
		}
		for _, hop := range route.NextHops {
			gateways = append(gateways, hop.Gateway)
		}
	}
	return gateways
}
