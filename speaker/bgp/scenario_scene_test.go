package bgp

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// scene is what the commands of one script act on.
type scene struct {
	t     *testing.T
	cell  cell
	fail  func(format string, args ...any) // ends the script with the line that is at fault
	read  func(file string) string         // of those in the script
	setup setup
	frrd  *router
	birdd *bird
	nodes [2]*node
	paths *paths // of node 1
	lost  func() []netip.Prefix
	had   int64   // memory of node 1 when watch was said, in bytes
	held  [2]held // the nodes' sessions when session up was said
}

func newScene(t *testing.T, c cell) *scene {
	return &scene{
		t: t, cell: c, nodes: [2]*node{newNode(t), newNode(t)},
		setup: setup{port: "179", timers: patientBFD()}, paths: &paths{timers: patientBFD()},
	}
}

// sceneCommands are those that scripts have besides testscript's own.
func sceneCommands() map[string]func(s *scene, neg bool, args []string) {
	only := func(do func(s *scene, args []string)) func(*scene, bool, []string) {
		return func(s *scene, neg bool, args []string) {
			if neg {
				s.fail("this cannot be negated")
			}
			do(s, args)
		}
	}
	return map[string]func(s *scene, neg bool, args []string){
		"router": only((*scene).router), "node": only((*scene).configureNode),
		"service": only((*scene).service), "objects": only((*scene).objects), "beside": only((*scene).beside), "daemon": only((*scene).daemon), "port": only((*scene).port),
		"announce": only((*scene).announce), "withdraw": only((*scene).withdraw),
		"kernel": only((*scene).kernel), "packets": only((*scene).packets), "told": only((*scene).told),
		"vtysh": (*scene).vtysh, "birdc": (*scene).birdc, "configure": only((*scene).configure),
		"die": only((*scene).die), "upgrade": only((*scene).upgrade), "leave": only((*scene).leave),
		"drain": only((*scene).drain), "bfd": only((*scene).bfd),
		"cut": only((*scene).cut), "mend": only((*scene).mend),
		"watch": only((*scene).watch), "lost": only((*scene).losses), "memory": only((*scene).memory), "session": only((*scene).session),
	}
}

// near is the router, whichever it is.
func (s *scene) near() *router {
	if s.birdd != nil {
		return s.birdd.router
	}
	if s.frrd == nil {
		s.fail("there is no router yet")
	}
	return s.frrd
}

// number takes the number of a node from the beginning of the arguments; without one it is 1.
func (s *scene) number(args []string) (*node, int, []string) {
	if len(args) > 0 && (args[0] == "1" || args[0] == "2") {
		at, _ := strconv.Atoi(args[0])
		return s.nodes[at-1], at, args[1:]
	}
	return s.nodes[0], 1, args
}

// configureNode gives a node its session: node [2] [password=X] [gtsm] [passive] [hold=6s] [keepalive=2s] [id=X] [as=internal] [restart=off] [daemon=X] [source=NODE2]
func (s *scene) configureNode(args []string) {
	n, number, args := s.number(s.meant(args))
	id := toRouter(s.neighbour(number))
	id.PeerAddress, id.RouterID, id.MyASN = s.local(), node4, s.asn()
	if number == 2 {
		id.RouterID, id.NextHop4, id.NextHop6 = node4b, node4b, node6b
	}
	id.OneFamily = s.cell.family != "both"
	id.EBGPMultiHop = s.cell.hops == "multihop" && s.cell.as == "ebgp"
	if s.setup.unnumbered {
		id.Interface, id.PeerAddress, id.SourceAddress, id.NoRouter = cable, netip.Addr{}, netip.Addr{}, "no router was looked for"
	}
	for _, arg := range args {
		if err := ofNode(&id, arg); err != nil {
			s.fail("%v", err)
		}
	}
	n.start()
	n.change(func() {
		if n.identity.Interface != "" { // who is at the other end is known
			id.PeerAddress, id.SourceAddress, id.NoRouter = n.identity.PeerAddress, n.identity.SourceAddress, n.identity.NoRouter
		}
		n.identity = id
	})
	if s.setup.unnumbered {
		s.lookAround()
	}
}

// ofNode changes a node's side of the session by one word.
func ofNode(id *desired.Identity, arg string) (err error) {
	switch name, value, _ := strings.Cut(arg, "="); name {
	case "password":
		id.Password = view.Secret(value)
	case "gtsm":
		id.TTLSecurity = true
	case "passive":
		id.Passive = true
	case "hold":
		id.HoldTime, err = time.ParseDuration(value)
		id.KeepaliveTime = id.HoldTime / 3
	case "keepalive":
		id.KeepaliveTime, err = time.ParseDuration(value)
	case "id":
		id.RouterID, err = netip.ParseAddr(value)
	case "as":
		switch value {
		case "external":
			id.PeerASN, id.DynamicASN = 0, true
		case "internal":
			id.PeerASN, id.DynamicASN = id.MyASN, true
		default:
			var number uint64
			number, err = strconv.ParseUint(value, 10, 32)
			id.PeerASN, id.DynamicASN = uint32(number), false
		}
	case "restart":
		id.GracefulRestart = false
	case "source":
		id.SourceAddress, err = netip.ParseAddr(value)
	case "daemon":
		id.PeerAddress, err = netip.ParseAddr(value)
		id.SourceAddress, id.PeerPort, id.PeerASN = netip.Addr{}, daemonPort, id.MyASN
	default:
		err = fmt.Errorf("a node has no %q", arg)
	}
	return err
}

// announce has a node announce a prefix: announce [2] VIP [pref=] [med=] [prepend=] [community=] [large=] [bandwidth=]
func (s *scene) announce(args []string) {
	n, _, args := s.number(args)
	attrs, err := attributes(args[1:])
	if err != nil {
		s.fail("%v", err)
	}
	n.change(func() {
		s.each(args[:1], func(args []string) {
			n.routes[netip.MustParsePrefix(args[0])] = attrs
			delete(n.leaving, netip.MustParsePrefix(args[0]))
		})
	})
}

func attributes(args []string) (a desired.RouteAttrs, err error) {
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		numbers := make([]uint32, 0, 3)
		for field := range strings.SplitSeq(value, ":") {
			number, err := strconv.ParseUint(field, 10, 32)
			if err != nil {
				return a, fmt.Errorf("%s: %w", arg, err)
			}
			numbers = append(numbers, uint32(number))
		}
		switch {
		case name == "pref":
			a.LocalPref = numbers[0]
		case name == "med":
			a.MED = &numbers[0]
		case name == "prepend":
			a.Prepend = int(numbers[0])
		case name == "bandwidth":
			a.Bandwidth = numbers[0]
		case name == "community" && len(numbers) == 2:
			a.Communities = append(a.Communities, numbers[0]<<16|numbers[1])
		case name == "large" && len(numbers) == 3:
			a.LargeCommunities = append(a.LargeCommunities, view.LargeCommunity{Global: numbers[0], Local1: numbers[1], Local2: numbers[2]})
		default:
			return a, fmt.Errorf("a route has no %q", arg)
		}
	}
	return a, nil
}

// withdraw has a node withdraw a prefix: withdraw [2] VIP
func (s *scene) withdraw(args []string) {
	n, _, args := s.number(args)
	n.change(func() {
		s.each(args[:1], func(args []string) {
			delete(n.routes, netip.MustParsePrefix(args[0]))
			delete(n.leaving, netip.MustParsePrefix(args[0]))
		})
	})
}

// kernel waits for the next hops in the router's kernel: kernel VIP via HOP [HOP2], kernel VIP shares HOP=3 HOP2=1,
// or kernel VIP none; with "within 20s" at the end it must not take longer.
func (s *scene) kernel(args []string) {
	began, most := time.Now(), time.Duration(0)
	if at := slices.Index(args, "within"); at >= 0 && at+1 < len(args) {
		var err error
		if most, err = time.ParseDuration(args[at+1]); err != nil {
			s.fail("%v", err)
		}
		args = args[:at]
	}
	s.each(args, func(args []string) {
		switch {
		case len(args) == 2 && args[1] == "none":
			s.near().waitForKernel(args[0])
		case len(args) > 2 && args[1] == "via":
			s.near().waitForKernel(args[0], args[2:]...)
		case len(args) == 4 && args[1] == "shares":
			s.near().waitForShares(args[0], args[2], args[3])
		default:
			s.fail("want: kernel VIP via HOP..., kernel VIP shares HOP=1 HOP2=2, or: kernel VIP none")
		}
	})
	if took := time.Since(began); most > 0 && took > most {
		s.fail("it took %v", took)
	}
}

// packets waits until a connection from the router arrives at the address: packets VIP
func (s *scene) packets(args []string) {
	s.each(args, func(args []string) { s.near().reaches(args...) })
}

// told waits until a node's BGPSession says so, of the session with another beside the router too: told [2] [other] 'password differs'
func (s *scene) told(args []string) {
	n, _, args := s.number(args)
	of := theRouter
	if args[0] == other {
		of, args = other, args[1:]
	}
	var last string
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the node says\n%s", last)
		}
	}()
	s.each(args, func(args []string) {
		s.near().waitFor(fmt.Sprintf("the node says %q", args), func() bool {
			last = n.must(order{}).Sessions[of]
			if n == s.nodes[0] && of == theRouter {
				last += s.paths.inWords()
			}
			return !slices.ContainsFunc(args, func(part string) bool { return !strings.Contains(last, part) })
		})
	})
}

// vtysh asks FRR's daemon that the second word names until its answer matches all patterns, or with "!" none: vtysh 'show bgp AFI unicast VIP' 'localpref 250'
func (s *scene) vtysh(neg bool, args []string) {
	if s.cell.router == "frr" {
		s.ask(neg, args, func(command string) string { return s.frrd.vty(strings.Fields(command)[1]+"d", command) })
	}
}

// birdc does so with BIRD: birdc 'show route VIP all' 'local_pref: 250'
func (s *scene) birdc(neg bool, args []string) {
	if s.cell.router == "bird" {
		s.ask(neg, args, func(command string) string { return s.birdd.ask(command) })
	}
}

func (s *scene) ask(neg bool, args []string, ask func(command string) string) {
	if len(args) < 2 {
		s.fail("want a command and what its answer is to match")
	}
	s.each(args, func(args []string) {
		var said string
		defer func() {
			if s.t.Failed() {
				s.t.Logf("%s says\n%s", args[0], said)
			}
		}()
		s.near().waitFor(fmt.Sprintf("%s matches %q", args[0], args[1:]), func() bool {
			said = ask(args[0])
			return said != "" && !slices.ContainsFunc(args[1:], func(pattern string) bool {
				return regexp.MustCompile(pattern).MatchString(said) == neg
			})
		})
	})
}

// configure gives FRR lines below "router bgp": configure 'neighbor NODE password right'
func (s *scene) configure(args []string) {
	if s.cell.router == "frr" {
		s.each(args, func(args []string) { s.frrd.configure(args...) })
	}
}
