package health

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// apart skips a test that would change the network of the machine itself.
func apart(t *testing.T) {
	t.Helper()
	if !netlab.IsIsolated() {
		t.Skip("not in a network namespace of its own")
	}
}

// own gives this host an address on lo, and returns how to take it away.
func own(t *testing.T, address string) (lose func()) {
	t.Helper()
	apart(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	a, err := netlink.ParseAddr(netip.PrefixFrom(netip.MustParseAddr(address), netip.MustParseAddr(address).BitLen()).String())
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(lo, a); err != nil {
		t.Fatal(err)
	}
	lose = func() {
		if err := netlink.AddrDel(lo, a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			t.Error(err)
		}
	}
	t.Cleanup(lose)
	return lose
}

// refusing has this host refuse what is sent to addresses of a prefix that it has not, and not send it away.
func refusing(t *testing.T, prefix string) {
	t.Helper()
	apart(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	_, dst, err := net.ParseCIDR(prefix)
	if err != nil {
		t.Fatal(err)
	}
	route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}
	if err := netlink.RouteAdd(route); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.RouteDel(route); err != nil {
			t.Error(err)
		}
	})
}

// narrowed has a pass succeed that wants these checks within the prefixes.
func (a *asked) narrowed(checks map[view.Ref]desired.HealthCheck, within ...string) {
	f := desired.Forwarding{HealthNarrow: true}
	for _, p := range within {
		f.NodePorts = append(f.NodePorts, netip.MustParsePrefix(p))
	}
	a.Begin(&view.Cluster{Nodes: map[string]*view.Node{"a": {Name: "a"}}})
	a.Apply(desired.Node{Health: checks, Forwarding: f}, nil, nil)
}

func webAt(address string) string { return net.JoinHostPort(address, "30871") }

// says reports whether an address answers, or refuses.
func says(t *testing.T, address string, want bool) {
	t.Helper()
	got := ask(t, webAt(address), "/")
	if answers := strings.HasPrefix(got, "200"); answers != want || !answers && got != "refused" {
		t.Errorf("%s: %.12q, answers are wanted: %t", address, got, want)
	}
}

// becomes waits until an address answers, or refuses.
func becomes(t *testing.T, address string, want bool) {
	t.Helper()
	var dialer net.Dialer
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := dialer.DialContext(t.Context(), "tcp", webAt(address)) // what is asked may get an end while it is closed
		if err == nil {
			_ = c.Close()
		}
		switch {
		case (err == nil) == want:
			says(t, address, want)
			return
		case time.Now().After(limit):
			t.Fatalf("%s does not become so that it answers: %t", address, want)
		}
	}
}

// TestOnlyAddressesOfNodePortsAnswer has addresses of both families within the prefixes and without, for
// Services of each kind.
func TestOnlyAddressesOfNodePortsAnswer(t *testing.T) {
	for _, a := range []string{"192.0.2.1", "192.0.2.9", "198.51.100.7", "2001:db8::1", "2001:db8:51::7"} {
		own(t, a)
	}
	for name, test := range map[string]struct {
		ready map[addr.Family]int
		six   bool
	}{
		"both families": {map[addr.Family]int{addr.IPv4: 1, addr.IPv6: 1}, true},
		"IPv4, which addresses of both answer for": {map[addr.Family]int{addr.IPv4: 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.narrowed(map[view.Ref]desired.HealthCheck{web: having(webPort, test.ready)}, "192.0.2.0/24", "2001:db8::/64")
			for address, want := range map[string]bool{
				"192.0.2.1": true, "192.0.2.9": true, "198.51.100.7": false, "127.0.0.1": false,
				"2001:db8::1": test.six, "2001:db8:51::7": false, "::1": false,
			} {
				says(t, address, want)
			}
			// Where everything of a family is meant, one listener has it, and the other family is as before.
			n.narrowed(map[view.Ref]desired.HealthCheck{web: having(webPort, test.ready)}, "0.0.0.0/0", "2001:db8::/64")
			for address, want := range map[string]bool{
				"192.0.2.1": true, "198.51.100.7": true, "2001:db8::1": test.six, "2001:db8:51::7": false,
			} {
				says(t, address, want)
			}
			if len(n.failures) > 0 {
				t.Errorf("failures %q", n.failures)
			}
		})
	}
}

// TestAddressesThatComeAndGoAreFollowed holds a connection meanwhile, which is none of their business.
func TestAddressesThatComeAndGoAreFollowed(t *testing.T) {
	refusing(t, "192.0.2.0/24")
	own(t, "192.0.2.1")
	n := newNode(t)
	stop := start(t, n)
	defer stop()
	n.narrowed(map[view.Ref]desired.HealthCheck{web: having(webPort, map[addr.Family]int{addr.IPv4: 1, addr.IPv6: 1})}, "192.0.2.0/24")
	says(t, "192.0.2.1", true)
	says(t, "192.0.2.2", false)

	var dialer net.Dialer
	kept, err := dialer.DialContext(t.Context(), "tcp", webAt("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	replies := bufio.NewReader(kept)
	lives := func() {
		t.Helper()
		if _, err := io.WriteString(kept, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(replies, nil)
		if err != nil {
			t.Fatalf("a connection to an address that stayed is lost: %v", err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	lives()
	lose := own(t, "192.0.2.2")
	becomes(t, "192.0.2.2", true)
	lives()
	lose()
	becomes(t, "192.0.2.2", false)
	lives()
	n.narrowed(map[view.Ref]desired.HealthCheck{
		web:                                having(webPort, map[addr.Family]int{addr.IPv4: 2, addr.IPv6: 1}),
		{Namespace: "shop", Name: "other"}: having(webPort+1, map[addr.Family]int{addr.IPv4: 1}),
	}, "192.0.2.0/24")
	lives()
}

// TestLostNoticesAreMadeUpFor has nobody tell of an address: the next pass finds it.
func TestLostNoticesAreMadeUpFor(t *testing.T) {
	refusing(t, "192.0.2.0/24")
	n := newNode(t) // does not run
	cluster := &view.Cluster{Nodes: map[string]*view.Node{"a": {}}, Changes: view.Changes{Revision: 1}}
	pass := func() {
		n.Begin(cluster)
		n.Apply(desired.Node{
			Health:     map[view.Ref]desired.HealthCheck{web: having(webPort, map[addr.Family]int{addr.IPv4: 1})},
			Forwarding: desired.Forwarding{HealthNarrow: true, NodePorts: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
		}, nil, nil)
	}
	pass()
	own(t, "192.0.2.2")
	says(t, "192.0.2.2", false)
	pass()
	says(t, "192.0.2.2", true)
}

// TestATakenAddressLeavesTheOthers has a program listen on one of two.
func TestATakenAddressLeavesTheOthers(t *testing.T) {
	own(t, "192.0.2.1")
	own(t, "192.0.2.2")
	var listen net.ListenConfig
	foreign, err := listen.Listen(t.Context(), "tcp4", webAt("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	n := newNode(t)
	for range 3 {
		n.narrowed(map[view.Ref]desired.HealthCheck{web: having(webPort, map[addr.Family]int{addr.IPv4: 1})}, "192.0.2.0/24")
	}
	says(t, "192.0.2.2", true)
	if failing := testutil.ToFloat64(n.checks.failing()); failing != 1 {
		t.Errorf("%v ports are counted as failing, want one", failing)
	}
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	becomes(t, "192.0.2.1", true)
	if failing := testutil.ToFloat64(n.checks.failing()); failing != 0 {
		t.Errorf("%v ports are counted as failing, want none", failing)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.failures) != 1 || n.failures[0] != "shop/web 30871 listen tcp4 192.0.2.1:30871: bind: address already in use" {
		t.Errorf("failures %q, want one about the address", n.failures)
	}
}

// TestAnAddressThatIsBeingProbedIsNoFailure has the kernel still look whether another host has it, when
// nobody else can listen on it.
func TestAnAddressThatIsBeingProbedIsNoFailure(t *testing.T) {
	apart(t)
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "probed"}, PeerName: "probing"}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	a, err := netlink.ParseAddr("2001:db8:77::1/64") // tentative for as long as the link is down
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(link, a); err != nil {
		t.Fatal(err)
	}
	var listen net.ListenConfig
	if l, err := listen.Listen(t.Context(), "tcp6", webAt("2001:db8:77::1")); err == nil {
		_ = l.Close()
		t.Fatal("the address is usable already")
	}
	n := newNode(t)
	n.narrowed(map[view.Ref]desired.HealthCheck{web: having(webPort, map[addr.Family]int{addr.IPv6: 1})}, "2001:db8:77::/64")
	if failing := testutil.ToFloat64(n.checks.failing()); failing != 0 || len(n.failures) > 0 {
		t.Errorf("%v failing, %q", failing, n.failures)
	}
}
