package pulse

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// The gateway of a cluster that has one.
const gatewayIndex = 200

var gatewayAddress = netip.AddrFrom4([4]byte{192, 0, 2, gatewayIndex + 1})

// card is the interface of a node.
func (c *cluster) card(i int) links.Link {
	l := linkstest.Ethernet(2, true)
	l.MAC = net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}
	l.Prefixes = []netip.Prefix{netip.PrefixFrom(c.nodes[i].addr, 24)}
	l.Running, l.Ups = !c.nodes[i].pulled, c.nodes[i].ups
	if c.second != nil {
		l.Prefixes = []netip.Prefix{netip.PrefixFrom(on4(1+i), 24), netip.PrefixFrom(on6(1+i), 64)}
	}
	for a, by := range c.occupied {
		if by == i && !c.metallb {
			l.Prefixes = append(l.Prefixes, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return l
}

// occupies tells whether an interface of the node has an address, so that its kernel replies.
func (c *cluster) occupies(node int, a netip.Addr) bool {
	c.wires.Lock()
	defer c.wires.Unlock()
	by, is := c.occupied[a]
	return is && by == node && c.nodes[node].kernel.Load()
}

// cable is the links of a node, which change with what occupies its interface.
type cable struct {
	c    *cluster
	node int
}

func (c cable) Snapshot() *links.Snapshot {
	c.c.nodes[c.node].stand()
	c.c.wires.Lock()
	defer c.c.wires.Unlock()
	return links.NewSnapshot(c.c.card(c.node))
}
func (c cable) Changed() <-chan struct{} { return c.c.nodes[c.node].cable }

func (c cable) Gateways() []links.Gateway {
	c.c.wires.Lock()
	defer c.c.wires.Unlock()
	if !c.c.gateway {
		return nil
	}
	return []links.Gateway{{Address: gatewayAddress, Link: 2}}
}

// ears are a responder on the segment of the cluster, of which the frames are not real: it
// answers nobody, but knows what it would, and hears what others announce and answer.
type ears struct {
	c       *cluster
	node    int
	six     *ears // those of the node for IPv6; nil of these
	of      *ears // those by which the node is known
	claimed chan struct{}

	mu       sync.Mutex
	answers  map[netip.Addr]bool
	listened map[netip.Addr]bool
	claims   []neighbour.Claim
}

// newEars are those of a node for IPv4, which have others for IPv6.
func newEars(c *cluster, node int) *ears {
	e := &ears{c: c, node: node, claimed: make(chan struct{}, 1), answers: map[netip.Addr]bool{}}
	e.six = &ears{c: c, node: node, claimed: make(chan struct{}, 1), answers: map[netip.Addr]bool{}, of: e}
	e.of = e
	return e
}

// ear is the one of the family of an address.
func (e *ears) ear(a netip.Addr) *ears {
	if a.Is6() {
		return e.of.six
	}
	return e.of
}

func (e *ears) Answer(want, probed map[int][]netip.Addr, _ map[netip.Addr]time.Duration) {
	e.mu.Lock()
	before := e.answers
	e.answers, e.listened = map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, addresses := range want {
		for _, a := range addresses {
			e.answers[a] = true
			if !before[a] {
				// The first is not at once: Go 1.26 with the race detector crashes now and then at a
				// timer of a bubble that is due when it is made.
				for _, after := range []time.Duration{time.Nanosecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
					time.AfterFunc(after, func() {
						if e.does(a) {
							e.shout(a)
						}
					})
				}
			}
		}
	}
	for _, addresses := range probed {
		for _, a := range addresses {
			e.listened[a] = true
		}
	}
	e.mu.Unlock()
}

func (e *ears) does(a netip.Addr) bool {
	e = e.ear(a)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.answers[a]
}

// hears takes in that a station has an address.
func (e *ears) hears(a netip.Addr, from int) {
	e.take(a, from, false)
}

// take takes in that a station has an address, be it that it replies.
func (e *ears) take(a netip.Addr, from int, reply bool) {
	e = e.ear(a)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.answers[a] && !e.listened[a] {
		return
	}
	e.claims = append(e.claims, neighbour.Claim{
		Address: a, Station: station(from), Interface: "eth2", Index: 2, Reply: reply,
	})
	select {
	case e.claimed <- struct{}{}:
	default:
	}
}

// isDead tells whether the node is: what ends with it may go on for a while, and is not heard.
func (e *ears) isDead() bool { return e.c.nodes[e.node].answers.Load() != e.of }

// shout announces an address to the segment.
func (e *ears) shout(a netip.Addr) {
	if e.isDead() {
		return
	}
	for j, n := range e.c.nodes {
		if j != e.node && e.c.lit(e.node, j) {
			time.AfterFunc(simDelay, func() {
				if to := n.answers.Load(); to != nil {
					to.hears(a, e.node)
				}
			})
		}
	}
}

// lit tells whether frames get from one station to another one.
func (c *cluster) lit(from, to int) bool {
	c.wires.Lock()
	defer c.wires.Unlock()
	return !c.dark[[2]int{from, to}] && !c.muffled[[2]int{from, to}]
}

func (e *ears) Say(what neighbour.Word, _ int, a netip.Addr) {
	if what == neighbour.Announcement {
		e.shout(a)
		return
	}
	e.probe(a, neighbour.MAC{})
}

// station is the MAC of a node or the gateway.
func station(i int) neighbour.MAC { return neighbour.MAC{2, 0, 0, 0, 1, byte(i)} }

// probe asks all nodes for an address, or one.
func (e *ears) probe(a netip.Addr, only neighbour.MAC) {
	for j, n := range e.c.nodes {
		to := n.answers.Load()
		if replies := to != nil && to.does(a) || e.c.occupies(j, a); replies && j != e.node && (only == neighbour.MAC{} || only == station(j)) && e.c.lit(e.node, j) && e.c.lit(j, e.node) {
			time.AfterFunc(2*simDelay, func() { e.take(a, j, true) })
		}
	}
}

// Ask is answered by the gateway, and by the kernels of nodes; for all other addresses by who
// answers for them.
func (e *ears) Ask(_ int, a, _ netip.Addr, to neighbour.MAC) {
	at := slices.IndexFunc(e.c.nodes, func(n *simNode) bool { return n.addr == a })
	if a == gatewayAddress {
		at = gatewayIndex
	}
	if at < 0 {
		e.probe(a, to)
		return
	}
	there := at == gatewayIndex || e.c.nodes[at].kernel.Load()
	if there && e.c.lit(e.node, at) && e.c.lit(at, e.node) {
		time.AfterFunc(2*simDelay, func() { e.take(a, at, true) })
	}
}

func (e *ears) Claims() []neighbour.Claim {
	e.c.nodes[e.node].stand()
	e.mu.Lock()
	defer e.mu.Unlock()
	claims := e.claims
	e.claims = nil
	return claims
}

func (e *ears) Open([]neighbour.Interface) map[int]error { return nil }
func (e *ears) Broken() <-chan struct{}                  { return nil }
func (e *ears) Claimed() <-chan struct{}                 { return e.claimed }
func (e *ears) Close()                                   { e.Answer(nil, nil, nil) }
