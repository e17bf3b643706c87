package bgp

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// The router that is one hop away, as it is seen from the nodes, and that hop as it is seen from
// the router.
var (
	farRouter4 = netip.MustParseAddr("10.99.0.1")
	farRouter6 = netip.MustParseAddr("fd99::1")
	far4       = netip.MustParseAddr("10.99.0.254")
	far6       = netip.MustParseAddr("fd99::fe")
	node6b     = netip.MustParseAddr("fd98::3")
)

// moveAway puts another router between the nodes and the one that they speak with. It forwards,
// knows where the Services are, and has no part in BGP.
func (r *router) moveAway() {
	r.t.Helper()
	hop := fmt.Sprintf("flhop%d", os.Getpid())
	r.must("ip", "netns", "add", hop)
	r.t.Cleanup(func() { r.must("ip", "netns", "del", hop) })
	for _, command := range []string{
		"ip -n " + r.ns + " link set tonode netns " + hop,
		"ip -n " + hop + " link add torouter type veth peer name tonode netns " + r.ns,
		"ip netns exec " + hop + " sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
		"ip -n " + hop + " addr add 10.98.0.254/24 dev tonode",
		"ip -n " + hop + " addr add fd98::fe/64 dev tonode nodad",
		"ip -n " + hop + " addr add 10.99.0.254/24 dev torouter",
		"ip -n " + hop + " addr add fd99::fe/64 dev torouter nodad",
		"ip -n " + hop + " link set tonode up",
		"ip -n " + hop + " link set torouter up",
		"ip -n " + hop + " route add 192.0.2.0/24 via 10.98.0.2",
		"ip -n " + hop + " route add 2001:db8:a::/48 via fd98::2",
		"ip -n " + r.ns + " addr add 10.99.0.1/24 dev tonode",
		"ip -n " + r.ns + " addr add fd99::1/64 dev tonode nodad",
		"ip -n " + r.ns + " link set tonode up",
		"ip -n " + r.ns + " route add 10.98.0.0/24 via 10.99.0.254",
		"ip -n " + r.ns + " route add fd98::/64 via fd99::fe",
		"ip route add 10.99.0.0/24 via 10.98.0.254",
		"ip route add fd99::/64 via fd98::fe",
	} {
		r.must(strings.Fields(command)...)
	}
}

// setup is how the router is configured towards the nodes.
type setup struct {
	password string
	gtsm     bool   // it asks for a TTL of 255
	dials    bool   // it opens the connections, to the port where nodes listen
	bfd      bool   // it speaks BFD
	restarts bool   // it restarts gracefully itself (FRR's "bgp graceful-restart")
	network  string // what it announces itself
	as       string // external or internal in place of a number
}

// local is the router's address in the session.
func (s *scene) local() netip.Addr {
	switch far := s.cell.hops == "multihop"; {
	case far && s.cell.family == "ipv6":
		return farRouter6
	case far:
		return farRouter4
	case s.cell.family == "ipv6":
		return router6
	default:
		return router4
	}
}

// neighbour is the address of a node in the session.
func (s *scene) neighbour(number int) netip.Addr {
	six := s.cell.family == "ipv6"
	switch {
	case number == 1 && six:
		return node6
	case number == 1:
		return node4
	case six:
		return node6b
	default:
		return node4b
	}
}

// asn is that of the nodes.
func (s *scene) asn() uint32 {
	if s.cell.as == "ibgp" {
		return routerASN
	}
	return nodeASN
}

func (s *scene) remoteAS(c setup) string {
	if c.as != "" {
		return c.as
	}
	return fmt.Sprint(s.asn())
}

// frr renders what is below "router bgp".
func (s *scene) frr(c setup) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(" no bgp default ipv4-unicast")
	line(" no bgp network import-check")
	if s.cell.hops == "multihop" && s.cell.as == "ebgp" {
		// Else FRR 8.4 takes the next hop for a station of its own networks whenever the neighbour
		// connects, finds none, and takes routes from its kernel until the session is up.
		line(" bgp disable-ebgp-connected-route-check")
	}
	if c.restarts {
		line(" bgp graceful-restart")
	}
	for number := range 2 {
		neighbor := s.neighbour(number + 1)
		line(" neighbor %v remote-as %s", neighbor, s.remoteAS(c))
		if c.dials {
			line(" neighbor %v port %d", neighbor, passivePort)
			line(" neighbor %v timers connect 1", neighbor)
		} else {
			line(" neighbor %v passive", neighbor)
		}
		if c.password != "" {
			line(" neighbor %v password %s", neighbor, c.password)
		}
		if c.gtsm {
			line(" neighbor %v ttl-security hops 1", neighbor)
		}
		if s.cell.hops == "multihop" && s.cell.as == "ebgp" {
			line(" neighbor %v ebgp-multihop 2", neighbor)
		}
	}
	for _, f := range s.families() {
		line(" address-family %s unicast", f.afi)
		line("  neighbor %v activate", s.neighbour(1))
		line("  neighbor %v activate", s.neighbour(2))
		if c.network != "" && strings.Contains(c.network, ":") == (f.afi == "ipv6") {
			line("  network %s", c.network)
		}
		line(" exit-address-family")
	}
	return b.String()
}

// bird renders its protocols.
func (s *scene) bird(c setup) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if s.cell.hops == "multihop" {
		line("protocol static { ipv4; route 10.98.0.0/24 via %v; }", far4)
		line("protocol static { ipv6; route fd98::/64 via %v; }", far6)
	}
	if c.network != "" {
		line("protocol static own { %s; route %s blackhole; }", familyOf(c.network), c.network)
	}
	for number := range 2 {
		line("protocol bgp node%d {", number+1)
		line("	local %v as %d;", s.local(), routerASN)
		as := s.remoteAS(c)
		if c.as == "" {
			as = "as " + as
		}
		if c.dials {
			line("	neighbor %v port %d %s;", s.neighbour(number+1), passivePort, as)
			line("	connect delay time 1; connect retry time 1;")
		} else {
			line("	neighbor %v %s;\n	passive on;", s.neighbour(number+1), as)
		}
		line("	error wait time 1, 2;")
		line("	%s;", map[string]string{"single": "direct", "multihop": "multihop 2"}[s.cell.hops])
		if c.password != "" {
			line("	password %q;", c.password)
		}
		if c.gtsm {
			line("	ttl security on;")
		}
		if c.bfd {
			line("	bfd on;")
		}
		for _, f := range s.families() {
			export := "none"
			if c.network != "" {
				export = `where proto = "own"`
			}
			line("	%s { import all; export %s; };", f.afi, export)
		}
		line("}")
	}
	return b.String()
}

func familyOf(prefix string) string {
	if strings.Contains(prefix, ":") {
		return "ipv6"
	}
	return "ipv4"
}
