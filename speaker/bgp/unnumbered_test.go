package bgp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/adjacency"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// cable is this node's end of the cable to the router.
const cable = "flbgp0"

// unnumbered holds a session over the cable as a node does: with whoever the finder finds at
// its other end, and a BFD session with the same if there is any.
type unnumbered struct {
	t       *testing.T
	speaker *Speaker
	paths   *bfd.Sessions // nil: no BFD
	id      desired.Identity

	mu   sync.Mutex
	last desired.Identity
}

func overCable(t *testing.T, id desired.Identity, paths *bfd.Sessions) *unnumbered {
	t.Helper()
	u := &unnumbered{t: t, speaker: newSpeaker(t), paths: paths, id: id}
	finder, watcher := adjacency.New(quiet(t)), links.NewWatcher(quiet(t))
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := watcher.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	tasks.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-watcher.Changed():
			case <-finder.Changed():
			}
			finder.Set([]string{cable}, watcher.Snapshot())
			if found, ok := finder.Status()[cable]; ok {
				u.apply(found.Local, found.Router, found.Trouble)
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		tasks.Wait()
		finder.Close()
	})
	return u
}

func (u *unnumbered) apply(local, router netip.Addr, trouble string) {
	id := u.id
	id.Interface = cable
	if router.IsValid() {
		id.PeerAddress, id.SourceAddress = router, local
	} else {
		id.NoRouter = "no router: " + trouble
	}
	u.mu.Lock()
	u.last = id
	u.mu.Unlock()
	if err := u.speaker.Apply(context.Background(), map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip, vip6)}}); err != nil {
		u.t.Error(err)
	}
	if u.paths == nil {
		return
	}
	wanted := map[string]desired.BFD{}
	if router.IsValid() {
		wanted["tor"] = bfdTo(id, false)
	}
	u.paths.Set(wanted)
}

func (u *unnumbered) identity() desired.Identity {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last
}

// unnumberedLines configure a neighbor at the other end of the router's interface.
func unnumberedLines(remoteAS string, more ...string) string {
	lines := []string{" neighbor tonode interface remote-as " + remoteAS}
	for _, m := range more {
		lines = append(lines, " neighbor tonode "+m)
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		lines = append(lines, " address-family "+family+" unicast", "  neighbor tonode activate", " exit-address-family")
	}
	return strings.Join(lines, "\n") + "\n"
}

// linkLocal is this side's address on the cable, once no other station has it.
func linkLocal(t *testing.T) (address string) {
	t.Helper()
	waitFor(t, "a link-local address", func() bool {
		out, err := exec.Command("ip", "-6", "-o", "addr", "show", "dev", cable, "scope", "link", "-tentative").Output()
		fields := strings.Fields(string(out))
		if err != nil || len(fields) < 4 {
			return false
		}
		address = netip.MustParsePrefix(fields[3]).Addr().String()
		return true
	})
	return address
}

// reaches waits until a connection from the router arrives at the addresses of Services.
func (r *router) reaches(prefixes ...string) {
	r.t.Helper()
	ns, err := netns.GetFromName(r.ns)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = ns.Close() })
	for _, p := range prefixes {
		address := netip.MustParsePrefix(p).Addr().String()
		r.must("ip", "addr", "replace", address, "dev", "lo", "nodad")
		r.t.Cleanup(func() { _ = exec.Command("ip", "addr", "del", address, "dev", "lo").Run() })
		service, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { _ = service.Close() })
		r.waitFor("a connection to "+address, func() bool {
			reached := make(chan bool)
			go func() {
				runtime.LockOSThread() // and the thread goes, which is in another namespace by then
				if err := netns.Set(ns); err != nil {
					r.t.Error(err)
				}
				conn, err := net.DialTimeout("tcp", service.Addr().String(), time.Second)
				if err == nil {
					_ = conn.Close()
				}
				reached <- err == nil
			}()
			return <-reached
		})
	}
}

// TestFRRUnnumbered: the two ends of a cable find each other by router advertisements, and
// packets arrive by next hops that are link-local, those of IPv4 too.
func TestFRRUnnumbered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		remoteAS string
		change   func(*desired.Identity)
		more     []string
		bfd      bool
	}{
		"eBGP, any number": {remoteAS: "external", change: func(id *desired.Identity) { id.PeerASN = 0 }},
		"iBGP":             {remoteAS: "internal", change: func(id *desired.Identity) { id.MyASN = routerASN }},
		"with a password and GTSM": {
			remoteAS: fmt.Sprint(nodeASN), more: []string{"password secret", "ttl-security hops 1"},
			change: func(id *desired.Identity) { id.Password, id.TTLSecurity = "secret", true },
		},
		"with BFD": {remoteAS: "external", more: []string{"bfd profile fast"}, bfd: true},
	} {
		t.Run(name, func(t *testing.T) {
			if netlab.Apart(t) {
				return
			}
			r := startRouter(t, "")
			var paths *bfd.Sessions
			if c.bfd {
				r.withBFD()
				paths, _ = runBFD(t)
			}
			id := toRouter(node4)
			id.PeerAddress, id.SourceAddress = netip.Addr{}, netip.Addr{}
			if c.change != nil {
				c.change(&id)
			}
			u := overCable(t, id, paths)
			waitFor(t, "it is told that there is no router", func() bool {
				return strings.HasPrefix(u.speaker.States()["tor"].LastError, "no router")
			})
			r.configure(strings.Split(unnumberedLines(c.remoteAS, c.more...), "\n")...)
			r.waitForKernel(vip, linkLocal(t))
			r.waitForKernel(vip6, linkLocal(t))
			r.reaches(vip, vip6)
			state := u.speaker.States()["tor"]
			if state.LocalAddress.String() != linkLocal(t) || len(state.Unannounced) > 0 || state.PeerASN != routerASN || state.Advertised != 2 {
				t.Errorf("state %+v", state)
			}
			if c.bfd {
				r.waitFor("both sides are Up", func() bool {
					return paths.Status()["tor"].State == bfd.Up && r.bfd(u.identity().SourceAddress.WithZone("")).Status == "up"
				})
				u.survivesACut(r)
			}
		})
	}
}

// survivesACut cuts the cable under a session with BFD. The router's advertisements are good for
// half an hour and its hold time is a minute: only BFD tells so soon.
func (u *unnumbered) survivesACut(r *router) {
	u.t.Helper()
	r.waitForKernel(vip, linkLocal(u.t)) // FRR 8.4 ends BGP once if BFD was there before it
	noticed(u.t, r, u.speaker, u.paths)
	r.waitForKernel(vip6)
	r.mend()
	r.waitForKernel(vip, linkLocal(u.t))
	r.waitForKernel(vip6, linkLocal(u.t))
	r.reaches(vip, vip6)
}

// TestFRRUnnumberedFollowsTheCable: the router gets another address, the node gets another
// address, and the interface goes and comes again.
func TestFRRUnnumberedFollowsTheCable(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, unnumberedLines("external"))
	id := toRouter(node4)
	id.PeerAddress, id.SourceAddress = netip.Addr{}, netip.Addr{}
	u := overCable(t, id, nil)
	r.waitForKernel(vip, linkLocal(t))
	router := u.identity().PeerAddress

	for _, what := range []string{"down", "address 02:00:00:00:98:01", "up"} {
		r.must(append([]string{"ip", "-n", r.ns, "link", "set", "tonode"}, strings.Fields(what)...)...)
	}
	waitFor(t, "the router's new address is found", func() bool {
		now := u.identity().PeerAddress
		return now.IsValid() && now != router
	})
	r.waitForKernel(vip, linkLocal(t))

	before := linkLocal(t)
	for _, what := range []string{"down", "address 02:00:00:00:98:02", "up"} {
		r.must(append([]string{"ip", "link", "set", cable}, strings.Fields(what)...)...)
	}
	waitFor(t, "this side has another address", func() bool { return linkLocal(t) != before })
	r.waitForKernel(vip, linkLocal(t))

	r.must("ip", "link", "del", cable)
	waitFor(t, "it is told that there is no such interface", func() bool {
		return strings.Contains(u.speaker.States()["tor"].LastError, "this node has no interface "+cable)
	})
	r.must(strings.Fields("ip link add " + cable + " type veth peer name tonode netns " + r.ns)...)
	r.must("ip", "link", "set", cable, "up")
	r.must("ip", "-n", r.ns, "link", "set", "tonode", "up")
	r.waitForKernel(vip, linkLocal(t))
}

// TestBIRDUnnumbered: as with FRR, BFD and all, but that BIRD tells of itself by a protocol of its own and
// takes the next hops of IPv4 only if it is told to.
func TestBIRDUnnumbered(t *testing.T) {
	t.Parallel()
	for name, extended := range map[string]bool{"extended next hops": true, "IPv6 only": false} {
		t.Run(name, func(t *testing.T) {
			if netlab.Apart(t) {
				return
			}
			option, path := "", ""
			var paths *bfd.Sessions
			if extended {
				option, path = " extended next hop on;", "bfd on;"
				paths, _ = runBFD(t)
			}
			b := newBIRD(t)
			b.begin(bfdInterval, bfdMultiplier, fmt.Sprintf(`
protocol radv { interface "tonode" { min ra interval 3; max ra interval 4; }; }
protocol bgp node {
	local as %d;
	neighbor range fe80::/10 external;
	interface "tonode";
	direct;
	%s
	ipv4 { import all; export none;%s };
	ipv6 { import all; export none; };
}
`, routerASN, path, option))
			id := toRouter(node4)
			id.PeerAddress, id.SourceAddress = netip.Addr{}, netip.Addr{}
			u := overCable(t, id, paths)
			b.waitForKernel(vip6, linkLocal(t))
			b.reaches(vip6)
			if extended {
				b.waitForKernel(vip, linkLocal(t))
				b.reaches(vip)
				b.waitFor("both sides are Up", func() bool {
					state, _ := b.bfd(u.identity().SourceAddress.WithZone(""))
					return paths.Status()["tor"].State == bfd.Up && state == "Up"
				})
				u.survivesACut(b.router)
				return
			}
			state := u.speaker.States()["tor"]
			if state.Advertised != 1 || len(state.Unannounced) != 1 || !strings.Contains(state.Unannounced[0].String(), "RFC 8950") {
				t.Errorf("state %+v", state)
			}
			if have := b.kernel(vip); len(have) > 0 {
				t.Errorf("a route by %v", have)
			}
		})
	}
}
