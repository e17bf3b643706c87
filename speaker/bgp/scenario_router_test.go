package bgp

import (
	"fmt"
	"iter"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The router that is one hop away, as it is seen from the nodes, and that hop as it is seen from
// the router: by one of its addresses on the way to node 1, by the other on that to node 2.
var (
	farRouter4 = netip.MustParseAddr("10.99.0.1")
	farRouter6 = netip.MustParseAddr("fd99::1")
	far4       = netip.MustParseAddr("10.99.0.254")
	far4b      = netip.MustParseAddr("10.99.0.253")
	far6       = netip.MustParseAddr("fd99::fe")
	far6b      = netip.MustParseAddr("fd99::fd")
	node6b     = netip.MustParseAddr("fd98::3")
)

// moveAway puts another router between the nodes and the one that they speak with. It forwards,
// knows where the Services are, and has no part in BGP. It has an address for the way to each
// node, so that the router can tell its routes to them apart.
func (r *router) moveAway() {
	r.t.Helper()
	hop := fmt.Sprintf("flhop%d", os.Getpid())
	r.addNamespace(hop)
	r.t.Cleanup(func() { r.must("ip", "netns", "del", hop) })
	r.ip(r.ns, "link set tonode netns "+hop)
	r.must("ip", "netns", "exec", hop, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	r.ip(hop,
		"link add torouter type veth peer name tonode netns "+r.ns,
		"addr add 10.98.0.254/24 dev tonode",
		"addr add fd98::fe/64 dev tonode nodad",
		"addr add 10.99.0.254/24 dev torouter",
		"addr add 10.99.0.253/24 dev torouter",
		"addr add fd99::fe/64 dev torouter nodad",
		"addr add fd99::fd/64 dev torouter nodad",
		"link set tonode up",
		"link set torouter up",
		"route add 192.0.2.0/24 via 10.98.0.2",
		"route add 198.51.100.0/24 via 10.98.0.2",
		"route add 2001:db8:a::/48 via fd98::2",
		"route add 2001:db8:b::/48 via fd98::2",
	)
	r.ip(r.ns,
		"addr add 10.99.0.1/24 dev tonode",
		"addr add fd99::1/64 dev tonode nodad",
		"link set tonode up",
		"route add 10.98.0.0/24 via 10.99.0.254",
		"route add 10.98.0.3 via 10.99.0.253",
		"route add fd98::/64 via fd99::fe",
		"route add fd98::3 via fd99::fd",
	)
	r.ip("", "route add 10.99.0.0/24 via 10.98.0.254", "route add fd99::/64 via fd98::fe")
}

// setup is how the router is configured towards the nodes.
type setup struct {
	password   string
	gtsm       bool   // it asks for a TTL of 255
	dials      bool   // it opens the connections, to the port where nodes listen
	bfd        bool   // it speaks BFD
	restarts   bool   // it restarts gracefully itself
	unnumbered bool   // its neighbour is whoever is at the other end of the cable
	apart      bool   // it has a session for each family
	plain      bool   // it takes no IPv6 next hops for IPv4
	network    string // what it announces itself
	routes     int    // so many of them
	daemon     bool   // node 2 is another daemon of node 1
	as         string // external, internal or a number in place of the node's
	port       string // where it listens
	timers     timers // of BFD
}

// router starts the router: router [password=X] [gtsm] [dials] [bfd] [every=300ms] [multiplier=3] [restarts] [unnumbered] [apart] [plain] [network=X] [routes=N] [as=external] [port=1179];
// router stops, and router starts: its routing daemon is killed and started again.
func (s *scene) router(args []string) {
	switch {
	case slices.Equal(args, []string{"stops"}):
		s.near().kill(s.daemonName())
		return
	case slices.Equal(args, []string{"starts"}):
		s.restartRouter()
		return
	}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "password":
			s.setup.password = value
		case "gtsm":
			s.setup.gtsm = true
		case "dials":
			s.setup.dials = true
		case "bfd":
			s.setup.bfd = true
		case "restarts":
			s.setup.restarts = true
		case "unnumbered":
			s.setup.unnumbered = true
		case "apart":
			s.setup.apart = true
		case "plain":
			s.setup.plain = true
		case "network":
			s.setup.network = value
		case "routes":
			s.setup.routes, _ = strconv.Atoi(value)
		case "as":
			s.setup.as = value
		case "port":
			s.setup.port = value
		default:
			var err error
			if s.setup.timers, err = s.setup.timers.with(arg); err != nil {
				s.fail("a router has no %q: %v", arg, err)
			}
		}
	}
	s.startRouter()
}

func (s *scene) startRouter() {
	moved := func(r *router) {
		if s.cell.hops == "multihop" {
			r.moveAway()
		}
	}
	if s.cell.router == "bird" {
		s.birdd = newBIRD(s.t)
		moved(s.birdd.router)
		s.birdd.begin(s.setup.timers, s.bird(s.setup))
		return
	}
	s.frrd = newFRR(s.t)
	moved(s.frrd)
	s.frrd.run(s.frr(s.setup), "-p", s.setup.port)
	if s.setup.bfd {
		s.frrd.withBFD(s.setup.timers)
	}
}

func (s *scene) daemonName() string {
	if s.birdd != nil {
		return "bird"
	}
	return "bgpd"
}

// restartRouter starts the daemon that was killed as it was started before.
func (s *scene) restartRouter() {
	if s.birdd != nil {
		var more []string
		if s.setup.restarts {
			more = []string{"-R"}
		}
		s.birdd.begin(s.setup.timers, s.bird(s.setup), more...)
		return
	}
	s.frrd.start("bgpd", s.frrd.config, "-p", s.setup.port)
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

// neighbourName is how the router calls a node.
func (s *scene) neighbourName(number int) string {
	if s.setup.unnumbered && s.frrd != nil {
		return "tonode"
	}
	return s.neighbour(number).String()
}

func (s *scene) remoteAS(c setup) string {
	switch {
	case c.as != "":
		return c.as
	case c.unnumbered:
		return map[string]string{"ebgp": "external", "ibgp": "internal"}[s.cell.as]
	}
	return fmt.Sprint(s.asn())
}

// farOutside tells whether the nodes are more than one hop away and, as the router is told, in another AS.
func (s *scene) farOutside(c setup) bool {
	return s.cell.hops == "multihop" && (s.cell.as == "ebgp" || c.as != "")
}

// frr renders what is below "router bgp".
func (s *scene) frr(c setup) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(" no bgp default ipv4-unicast")
	line(" no bgp network import-check")
	if s.farOutside(c) {
		// Else FRR 8.4 takes the next hop for a station of its own networks whenever the neighbour
		// connects, finds none, and takes routes from its kernel until the session is up.
		line(" bgp disable-ebgp-connected-route-check")
	}
	if c.restarts {
		line(" bgp graceful-restart")
	}
	nodes := s.neighbours()
	for _, neighbor := range nodes {
		if c.unnumbered {
			line(" neighbor %s interface remote-as %s", neighbor, s.remoteAS(c))
		} else {
			line(" neighbor %s remote-as %s", neighbor, s.remoteAS(c))
		}
		for _, l := range s.frrNeighbor(c) {
			line(" neighbor %s %s", neighbor, l)
		}
	}
	for _, f := range s.families() {
		line(" address-family %s unicast", f.afi)
		for _, neighbor := range nodes {
			if !c.apart || familyOf(neighbor) == f.afi {
				line("  neighbor %s activate", neighbor)
			}
		}
		if c.network != "" && familyOf(c.network) == f.afi {
			line("  network %s", c.network)
		}
		for prefix := range manyPrefixes(f.afi, c.routes) {
			line("  network %v", prefix)
		}
		line(" exit-address-family")
	}
	return b.String()
}

// neighbours are the nodes by the names that the router has for them.
func (s *scene) neighbours() []string {
	if s.setup.unnumbered {
		return []string{"tonode"}
	}
	nodes := []string{s.neighbour(1).String(), s.neighbour(2).String()}
	if s.setup.apart {
		nodes = append(nodes, node6.String(), node6b.String())
	}
	return nodes
}

// frrNeighbor is what FRR is told of each of them.
func (s *scene) frrNeighbor(c setup) (lines []string) {
	switch {
	case c.unnumbered:
	case c.dials:
		lines = append(lines, fmt.Sprintf("port %d", passivePort), "timers connect 1")
	default:
		lines = append(lines, "passive")
	}
	if c.plain {
		lines = append(lines, "no capability extended-nexthop")
	}
	if c.password != "" {
		lines = append(lines, "password "+c.password)
	}
	if c.gtsm && s.cell.as == "ebgp" { // FRR 8.4 has it for eBGP alone, and sends 255 to all others
		lines = append(lines, "ttl-security hops 1")
	}
	if s.farOutside(c) {
		lines = append(lines, "ebgp-multihop 2")
	}
	return lines
}

// manyPrefixes are so many prefixes of a family that are nobody else's.
func manyPrefixes(family string, n int) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for i := range n {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(20 + i>>16), byte(i >> 8), byte(i)}), 24)
			if family == "ipv6" {
				p = netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(0x80 | i>>16), byte(i >> 8), byte(i)}), 56)
			}
			if !yield(p) {
				return
			}
		}
	}
}

// bird renders its protocols.
func (s *scene) bird(c setup) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if s.cell.hops == "multihop" {
		line("protocol static { ipv4; route 10.98.0.0/24 via %v; route %v/32 via %v; }", far4, node4b, far4b)
		line("protocol static { ipv6; route fd98::/64 via %v; route %v/128 via %v; }", far6, node6b, far6b)
	}
	own := map[string][]string{}
	if c.network != "" {
		own[familyOf(c.network)] = []string{c.network}
	}
	for _, f := range s.families() {
		for prefix := range manyPrefixes(f.afi, c.routes) {
			own[f.afi] = append(own[f.afi], prefix.String())
		}
	}
	for family, networks := range own {
		line("protocol static own_%s { %[1]s;", family)
		for _, n := range networks {
			line("	route %s blackhole;", n)
		}
		line("}")
	}
	if c.unnumbered {
		line(`protocol radv { interface "tonode" { min ra interval 3; max ra interval 4; }; }`)
		line("protocol bgp node1 {")
		line("	local as %d;\n	neighbor range fe80::/10 %s;\n	interface \"tonode\";", routerASN, s.remoteAS(c))
		s.birdNeighbor(line, c, s.families(), len(own) > 0)
		return b.String()
	}
	as := s.remoteAS(c)
	if c.as == "" || as[0] <= '9' {
		as = "as " + as
	}
	for number, neighbour := range s.neighbours() {
		local, families := s.local(), s.families()
		switch {
		case number > 1 && s.cell.hops == "multihop":
			local = farRouter6
		case number > 1:
			local = router6
		}
		if c.apart {
			families = slices.DeleteFunc(families, func(f spoken) bool { return f.afi != familyOf(neighbour) })
		}
		line("protocol bgp node%d {", number+1)
		line("	local %v port %s as %d;", local, c.port, routerASN)
		if c.dials {
			line("	neighbor %v port %d %s;", neighbour, passivePort, as)
			line("	connect delay time 1; connect retry time 1;")
		} else {
			line("	neighbor %v %s;\n	passive on;", neighbour, as)
		}
		s.birdNeighbor(line, c, families, len(own) > 0)
	}
	return b.String()
}

// birdNeighbor renders what BIRD is told of any node, for these families.
func (s *scene) birdNeighbor(line func(format string, args ...any), c setup, families []spoken, announces bool) {
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
	if c.restarts {
		line("	graceful restart on;")
	}
	for _, f := range families {
		export, more := "none", ""
		if announces {
			export = `where proto ~ "own_*"`
		}
		if c.unnumbered && !c.plain && f.afi == "ipv4" {
			more = " extended next hop on;"
		}
		// Of itself BIRD makes nothing of the community of a graceful shutdown (RFC 8326, 4.1).
		line("	%s { import filter { if (65535, 0) ~ bgp_community then bgp_local_pref = 0; accept; }; export %s;%s };", f.afi, export, more)
	}
	line("}")
}

func familyOf(prefix string) string {
	if strings.Contains(prefix, ":") {
		return "ipv6"
	}
	return "ipv4"
}
