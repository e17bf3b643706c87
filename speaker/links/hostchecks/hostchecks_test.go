package hostchecks_test

import (
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
	"fairlead.dev/fairlead/speaker/links/linkstest"
)

var (
	own  = netip.MustParseAddr("192.0.2.1")
	vip4 = netip.MustParseAddr("192.0.2.200")
	vip6 = netip.MustParseAddr("2001:db8::200")
)

// machine is a node on a segment, with a client that asks.
type machine struct {
	*linkstest.Host
	segment *linkstest.Segment
	client  *linkstest.Host
}

func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{linkstest.NewHost(t), linkstest.NewSegment(t), linkstest.NewHost(t)}
	m.segment.Attach(m.client, "eth0", "192.0.2.99/24", "2001:db8::99/64")
	m.client.Sysctl("ipv4/neigh/eth0/retrans_time_ms", "200")
	m.client.Sysctl("ipv6/neigh/eth0/retrans_time_ms", "200")
	m.segment.Attach(m.Host, "eth0", "192.0.2.1/24", "2001:db8::1/64")
	return m
}

// bridge makes an interface as kube-proxy's kube-ipvs0 is one: nothing is behind it.
func (m machine) bridge(name string, prefixes ...string) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	m.Add(&netlink.Bridge{LinkAttrs: attrs})
	for _, p := range prefixes {
		m.AddAddress(name, p)
	}
}

// look reads the kernel and lists what is found of the addresses, which are answered for on the
// interfaces, by another node if there are none.
func (m machine) look(t *testing.T, on []string, addresses ...netip.Addr) []hostchecks.Obstacle {
	t.Helper()
	found := map[hostchecks.Obstacle][]netip.Addr{}
	if err := m.Do(func() error {
		s, err := links.Read()
		if err != nil {
			return err
		}
		all := map[netip.Addr]hostchecks.Address{}
		var used []links.Link
		for _, a := range addresses {
			asked := s.Answering(a, nil, []netip.Addr{own})
			all[a] = hostchecks.Address{On: on, Asked: asked}
			used = append(used, asked...)
		}
		for _, l := range s.All() {
			if slices.Contains(on, l.Name) {
				used = append(used, l)
			}
		}
		k, err := hostchecks.Read(s, used, []netip.Addr{own})
		found = hostchecks.Find(k, all)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for o, of := range found {
		if !slices.Equal(of, addresses) {
			t.Errorf("%+v is of %v, want %v", o, of, addresses)
		}
	}
	return slices.Collect(maps.Keys(found))
}

func (m machine) finds(t *testing.T, on []string, a netip.Addr, want ...hostchecks.Obstacle) {
	t.Helper()
	if got := m.look(t, on, a); !slices.Equal(got, want) {
		t.Errorf("%s on %v: found %+v, want %+v", a, on, got, want)
	}
}

// answers reports whether the kernel of the machine answers the client, in truth.
func (m machine) answers(t *testing.T, a netip.Addr) bool {
	t.Helper()
	m.client.Forget("eth0", a) // also that nobody answered before
	m.client.Ask(a)
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if m.client.Neighbour("eth0", a) != nil {
			return true
		}
	}
	return false
}

// agrees holds what is found against what the client sees.
func (m machine) agrees(t *testing.T, a netip.Addr, want ...hostchecks.Obstacle) {
	t.Helper()
	m.finds(t, nil, a, want...)
	if got := m.answers(t, a); got != (len(want) > 0) {
		t.Errorf("the kernel answers for %s: %t", a, got)
	}
}

// The kernel answers for what any interface has, unless it is told not to; IPv6 does for
// what the interface itself has.
func TestAnAddressOnAnInterface(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.agrees(t, vip4)
	m.bridge("kube-ipvs0", "192.0.2.200/32", "2001:db8::200/128")
	m.agrees(t, vip4, hostchecks.Obstacle{Kind: hostchecks.Held, Interface: "eth0", Via: "kube-ipvs0"})
	m.agrees(t, vip6)
	m.finds(t, []string{"eth0"}, vip4) // it answers itself there
	m.Sysctl("ipv4/conf/all/arp_ignore", "1")
	m.agrees(t, vip4)
	m.Sysctl("ipv4/conf/all/arp_ignore", "0")
	m.Sysctl("ipv4/conf/eth0/arp_ignore", "2")
	m.agrees(t, vip4)
	m.AddAddress("eth0", "192.0.2.200/24")
	m.AddAddress("eth0", "2001:db8::200/64")
	m.agrees(t, vip4, hostchecks.Obstacle{Kind: hostchecks.Held, Interface: "eth0", Via: "eth0"})
	m.agrees(t, vip6, hostchecks.Obstacle{Kind: hostchecks.Held, Interface: "eth0", Via: "eth0"})
	m.Sysctl("ipv4/conf/eth0/arp_ignore", "8")
	m.agrees(t, vip4)
}

func TestAnAddressOnTheLoopback(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.AddAddress("lo", "192.0.2.200/32")
	m.agrees(t, vip4, hostchecks.Obstacle{Kind: hostchecks.Held, Interface: "eth0", Via: "lo"})
	m.Sysctl("ipv4/conf/eth0/arp_ignore", "1")
	m.agrees(t, vip4)
}

// Answering is of the same opinion.
func TestAnswering(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.bridge("kube-ipvs0", "192.0.2.200/32", "2001:db8::200/128")
	m.AddAddress("eth0", "2001:db8::201/64")
	other := vip6.Next()
	for ignore, want := range map[string]map[netip.Addr]string{
		"0": {vip4: "kube-ipvs0", other: "eth0"},
		"1": {other: "eth0"},
	} {
		m.Sysctl("ipv4/conf/eth0/arp_ignore", ignore)
		var got map[netip.Addr]string
		if err := m.Do(func() error {
			s, err := links.Read()
			if err != nil {
				return err
			}
			asked := map[netip.Addr][]links.Link{}
			for _, a := range []netip.Addr{vip4, vip6, other, own.Prev()} {
				asked[a] = s.Answering(a, nil, nil)
			}
			got = hostchecks.Answering(s, asked)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, want) {
			t.Errorf("arp_ignore=%s: %v, want %v", ignore, got, want)
		}
	}
	if got := hostchecks.Answering(nil, map[netip.Addr][]links.Link{vip4: nil}); len(got) > 0 {
		t.Errorf("before anything is known: %v", got)
	}
}

// A proxy answers for what it would send elsewhere.
func TestAProxy(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.Sysctl("ipv4/conf/all/forwarding", "1")
	m.Sysctl("ipv6/conf/all/forwarding", "1")
	m.Sysctl("ipv4/neigh/eth0/proxy_delay", "0")
	m.Sysctl("ipv6/neigh/eth0/proxy_delay", "0")
	m.Sysctl("ipv4/conf/eth0/proxy_arp", "1")
	m.agrees(t, vip4) // it is behind eth0 itself
	other := linkstest.NewSegment(t)
	other.Attach(m.Host, "eth1", "198.51.100.1/24")
	index := m.Link("eth1").Attrs().Index
	route := &netlink.Route{LinkIndex: index, Dst: &net.IPNet{IP: vip4.AsSlice(), Mask: net.CIDRMask(32, 32)}}
	if err := m.Netlink.RouteAdd(route); err != nil {
		t.Fatal(err)
	}
	proxied := hostchecks.Obstacle{Kind: hostchecks.Proxied, Interface: "eth0"}
	m.agrees(t, vip4, proxied)
	m.Sysctl("ipv4/conf/eth0/proxy_arp", "0")
	m.agrees(t, vip4)
	m.proxy(t, "add", vip4)
	m.agrees(t, vip4, proxied)
	m.proxy(t, "del", vip4)
	m.agrees(t, vip4)
	if err := m.Netlink.RouteDel(route); err != nil {
		t.Fatal(err)
	}
	m.Sysctl("ipv4/conf/eth0/proxy_arp_pvlan", "1")
	m.agrees(t, vip4, proxied)
	m.Sysctl("ipv4/conf/eth0/forwarding", "0")
	m.agrees(t, vip4)

	m.proxy(t, "add", vip6)
	m.agrees(t, vip6)
	m.Sysctl("ipv6/conf/eth0/proxy_ndp", "1")
	m.agrees(t, vip6, proxied)
}

func (m machine) proxy(t *testing.T, do string, a netip.Addr) {
	t.Helper()
	if err := m.Do(func() error {
		return exec.CommandContext(t.Context(), "ip", "neigh", do, "proxy", a.String(), "dev", "eth0").Run()
	}); err != nil {
		t.Fatalf("ip neigh %s proxy: %v", do, err)
	}
}

// A strict filter drops what comes by the second interface from beyond its network, while
// the way back is by the first. The kernel's own count of such drops is the judge.
func TestAStrictFilter(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	second := linkstest.NewSegment(t)
	router := linkstest.NewHost(t)
	second.Attach(router, "eth0", "198.51.100.254/24")
	second.Attach(m.Host, "eth1", "198.51.100.1/24", "2001:db8:1::1/64")
	m.route(t, "192.0.2.99")
	vip := netip.MustParseAddr("198.51.100.200")
	on := []string{"eth1"}
	filtered := hostchecks.Obstacle{Kind: hostchecks.ReversePath, Interface: "eth1", Via: "eth0"}

	m.finds(t, on, vip)
	for _, strict := range []string{"eth1", "all"} {
		m.Sysctl("ipv4/conf/"+strict+"/rp_filter", "1")
		m.finds(t, on, vip, filtered)
		m.finds(t, on, vip6) // there is no such filter
		m.finds(t, []string{"eth0"}, vip4)
		if m.hears(t, router) {
			t.Error("the kernel lets in what it was said to drop")
		}
		if strict == "eth1" {
			m.Sysctl("ipv4/conf/all/rp_filter", "2") // the greater one counts
			m.finds(t, on, vip)
			if !m.hears(t, router) {
				t.Error("the kernel drops what it was said to let in")
			}
			m.Sysctl("ipv4/conf/eth1/rp_filter", "0")
		}
	}
	// A second default route by eth1, for what arrives there, is the remedy.
	m.ip(t, "rule", "add", "iif", "eth1", "lookup", "101")
	m.ip(t, "route", "add", "default", "via", "198.51.100.254", "dev", "eth1", "table", "101")
	m.finds(t, on, vip, filtered) // answers do not arrive there: such a rule does not help
	m.ip(t, "rule", "add", "to", "192.0.0.0/24", "lookup", "101")
	m.finds(t, on, vip)
	if !m.hears(t, router) {
		t.Error("the kernel drops what it was said to let in")
	}
}

// On an interface without an IPv4 address the kernel filters as strictly with the loose setting.
func TestALooseFilterOnABareInterface(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	second := linkstest.NewSegment(t)
	router := linkstest.NewHost(t)
	second.Attach(router, "eth0", "198.51.100.254/24")
	second.Attach(m.Host, "eth1", "198.51.100.1/24", "2001:db8:1::1/64")
	m.route(t, "192.0.2.99")
	vip, on := netip.MustParseAddr("198.51.100.200"), []string{"eth1"}
	m.Sysctl("ipv4/conf/all/rp_filter", "2")
	m.finds(t, on, vip)
	if !m.hears(t, router) {
		t.Error("the kernel drops what it was said to let in")
	}
	m.ip(t, "addr", "del", "198.51.100.1/24", "dev", "eth1")
	m.ip(t, "addr", "add", "198.51.100.1/32", "dev", "lo")
	m.ip(t, "route", "add", "198.51.100.0/24", "dev", "eth1")
	m.finds(t, on, vip, hostchecks.Obstacle{Kind: hostchecks.BareReversePath, Interface: "eth1", Via: "eth0"})
	if m.hears(t, router) {
		t.Error("the kernel lets in what it was said to drop")
	}
	m.Sysctl("ipv4/conf/all/rp_filter", "0")
	m.Sysctl("ipv4/conf/eth1/rp_filter", "0")
	m.finds(t, on, vip)
	if !m.hears(t, router) {
		t.Error("without the filter it drops them, too")
	}
}

// Without a way back it is no matter of the filter.
func TestAStrictFilterWithoutARoute(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.Sysctl("ipv4/conf/all/rp_filter", "1")
	m.finds(t, []string{"eth0"}, vip4)
	m.route(t, "192.0.2.99")
	m.finds(t, []string{"eth0"}, vip4)
}

func (m machine) route(t *testing.T, by string) {
	t.Helper()
	m.ip(t, "route", "add", "default", "via", by)
}

func (m machine) ip(t *testing.T, args ...string) {
	t.Helper()
	if err := m.Do(func() error { return exec.CommandContext(t.Context(), "ip", args...).Run() }); err != nil {
		t.Fatalf("ip %v: %v", args, err)
	}
}

// hears reports whether a datagram from beyond reaches the machine by its second interface.
func (m machine) hears(t *testing.T, router *linkstest.Host) bool {
	t.Helper()
	const beyond = "192.0.0.8"
	server, err := m.ListenPacket("udp4", "192.0.2.1:7007")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, args := range [][]string{
		{"addr", "replace", beyond + "/32", "dev", "lo"},
		{"route", "replace", "192.0.2.1/32", "via", "198.51.100.1", "src", beyond},
	} {
		if err := router.Do(func() error { return exec.CommandContext(t.Context(), "ip", args...).Run() }); err != nil {
			t.Fatalf("ip %v: %v", args, err)
		}
	}
	conn, err := router.Dial("udp4", "192.0.2.1:7007")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := server.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	// A filter that is strict drops the router's ARP questions as well, which come from
	// beyond. Its kernel gives up on them after three seconds, so that only one who
	// goes on sending finds out that the way is open again.
	go func() {
		for {
			if _, err := conn.Write([]byte("?")); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	_, from, err := server.ReadFrom(make([]byte, 8))
	if err == nil && from.(*net.UDPAddr).IP.String() != beyond {
		t.Fatalf("it came from %s", from)
	}
	return err == nil
}
