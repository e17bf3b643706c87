package bgp

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// learned is one route as a router received it.
type learned struct {
	nextHop     netip.Addr
	localPref   uint32
	communities []uint32
	large       []string
	bandwidth   float32 // of the link, in bytes a second
	med         int     // -1: none
	asPath      []uint32
}

// peer is a router in this process: it listens on a loopback address, opens
// sessions and keeps a table of what it is told. The zero behaviour is that of
// a helpful router; the fields make it another.
type peer struct {
	asn      uint32
	families []packet.RouteFamily
	silent   bool            // takes connections and says nothing
	deaf     bool            // reads nothing any more once the session is up, and goes on saying that it is there
	frozen   bool            // neither reads nor says anything once the session is up
	slow     bool            // its KEEPALIVEs take for ever, so that the session is up for it alone
	hops     int             // the TTL of what it sends; 0: that of the kernel
	busy     <-chan struct{} // it reads nothing between the begin of the session and the close of this
	restart  bool            // announces graceful restart for its own routes, and End-of-RIB never
	old      bool            // knows AS numbers of 16 bits only
	greeting []byte
	password view.Secret // asked of 127.0.0.1 or ::1

	listener net.Listener
	ended    <-chan struct{} // closed with the test
	wg       sync.WaitGroup

	mu           sync.Mutex
	conns        map[net.Conn]struct{}
	session      net.Conn // of the session that is up, nil for none
	table        map[netip.Prefix]learned
	opened       []*packet.BGPOpen
	established  int
	endOfRIB     int
	whole        int                     // routes that it had at the last End-of-RIB of IPv4
	notification *packet.BGPNotification // the last one received
	updated      chan struct{}
}

// startPeer listens on address; change sets the behaviour.
func startPeer(t testing.TB, address string, change func(*peer)) *peer {
	t.Helper()
	p := &peer{
		asn: routerASN, families: []packet.RouteFamily{packet.RF_IPv4_UC, packet.RF_IPv6_UC},
		conns: map[net.Conn]struct{}{}, table: map[netip.Prefix]learned{}, updated: make(chan struct{}, 1), ended: t.Context().Done(),
	}
	if change != nil {
		change(p)
	}
	node := netip.MustParseAddr("127.0.0.1")
	if netip.MustParseAddrPort(address).Addr().Is6() {
		node = netip.IPv6Loopback()
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) {
			err = sign(int(fd), node, p.password)
			if p.hops != 0 {
				err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, p.hops))
			}
		}), err)
	}}
	var err error
	if p.listener, err = config.Listen(t.Context(), "tcp", address); err != nil {
		t.Fatal(err)
	}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.drop()
		p.wg.Wait()
	})
	return p
}

func (p *peer) addr() netip.AddrPort { return p.listener.Addr().(*net.TCPAddr).AddrPort() }

func (p *peer) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.take(conn)
	}
}

// take has a session on a connection, whoever opened it.
func (p *peer) take(conn net.Conn) {
	p.mu.Lock()
	p.conns[conn] = struct{}{}
	p.mu.Unlock()
	p.wg.Go(func() {
		p.serve(conn)
		_ = conn.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, conn)
	})
}

// drop closes all connections without a word.
func (p *peer) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *peer) serve(conn net.Conn) {
	if p.silent {
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	if _, err := conn.Write(p.greeting); err != nil {
		return
	}
	if p.greeting == nil {
		send(conn, p.open())
	}
	defer p.closed(conn)
	for {
		message, err := receive(conn)
		if err != nil {
			return
		}
		switch body := message.Body.(type) {
		case *packet.BGPOpen:
			p.mu.Lock()
			p.opened = append(p.opened, body)
			p.mu.Unlock()
			if !p.slow {
				send(conn, packet.NewBGPKeepAliveMessage())
			}
		case *packet.BGPKeepAlive:
			p.alive(conn)
			if p.deaf {
				p.chatter(conn)
				return
			}
			if p.frozen {
				<-p.ended
				return
			}
			if p.busy != nil {
				<-p.busy
			}
		case *packet.BGPUpdate:
			p.update(conn, body)
		case *packet.BGPNotification:
			p.mu.Lock()
			p.notification = body
			p.mu.Unlock()
			return
		}
	}
}

func (p *peer) open() *packet.BGPMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	capabilities := []packet.ParameterCapabilityInterface{packet.NewCapRouteRefresh()}
	if !p.old {
		capabilities = append(capabilities, packet.NewCapFourOctetASNumber(p.asn))
	}
	var tuples []*packet.CapGracefulRestartTuple
	for _, family := range p.families {
		capabilities = append(capabilities, packet.NewCapMultiProtocol(family))
		tuples = append(tuples, packet.NewCapGracefulRestartTuple(family, false))
	}
	if !p.restart {
		tuples = nil // a helper: it keeps the routes of others, and promises nothing for its own
	}
	capabilities = append(capabilities, packet.NewCapGracefulRestart(false, false, 120, tuples))
	return packet.NewBGPOpenMessage(uint16(p.asn), 90, "192.0.2.255",
		[]packet.OptionParameterInterface{packet.NewOptionParameterCapability(capabilities)})
}

// alive answers each keepalive with one; the first makes the session, and takes the place
// of one whose end was not seen yet.
func (p *peer) alive(conn net.Conn) {
	p.mu.Lock()
	answers := !p.slow
	if p.session != conn {
		p.session = conn
		p.established++
		clear(p.table)
	}
	p.mu.Unlock()
	if answers {
		send(conn, packet.NewBGPKeepAliveMessage())
	}
}

// chatter sends KEEPALIVEs until the connection ends.
func (p *peer) chatter(conn net.Conn) {
	keepalive, err := packet.NewBGPKeepAliveMessage().Serialize()
	for ; err == nil; time.Sleep(100 * time.Millisecond) {
		_, err = conn.Write(keepalive)
	}
}

func (p *peer) closed(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == conn {
		p.session = nil
		clear(p.table)
	}
}

func (p *peer) update(conn net.Conn, u *packet.BGPUpdate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != conn {
		return
	}
	if end, family := u.IsEndOfRib(); end {
		p.endOfRIB++
		if family == packet.RF_IPv4_UC {
			p.whole = len(p.table)
		}
	}
	for _, nlri := range u.WithdrawnRoutes {
		delete(p.table, netip.MustParsePrefix(nlri.String()))
	}
	route := learned{med: -1}
	var reached []packet.AddrPrefixInterface
	for _, nlri := range u.NLRI {
		reached = append(reached, nlri)
	}
	for _, attribute := range u.PathAttributes {
		switch a := attribute.(type) {
		case *packet.PathAttributeNextHop:
			route.nextHop, _ = netip.AddrFromSlice(a.Value)
		case *packet.PathAttributeLocalPref:
			route.localPref = a.Value
		case *packet.PathAttributeCommunities:
			route.communities = a.Value
		case *packet.PathAttributeLargeCommunities:
			for _, value := range a.Values {
				route.large = append(route.large, value.String())
			}
		case *packet.PathAttributeExtendedCommunities:
			for _, value := range a.Value {
				if link, ok := value.(*packet.LinkBandwidthExtended); ok && link.AS == nodeASN {
					route.bandwidth = link.Bandwidth
				}
			}
		case *packet.PathAttributeMultiExitDisc:
			route.med = int(a.Value)
		case *packet.PathAttributeAsPath:
			for _, segment := range a.Value {
				route.asPath = append(route.asPath, segment.GetAS()...)
			}
		case *packet.PathAttributeMpReachNLRI:
			route.nextHop, _ = netip.AddrFromSlice(a.Nexthop)
			reached = append(reached, a.Value...)
		case *packet.PathAttributeMpUnreachNLRI:
			for _, nlri := range a.Value {
				delete(p.table, netip.MustParsePrefix(nlri.String()))
			}
		}
	}
	route.nextHop = route.nextHop.Unmap()
	for _, nlri := range reached {
		p.table[netip.MustParsePrefix(nlri.String())] = route
	}
	select {
	case p.updated <- struct{}{}:
	default:
	}
}

func (p *peer) routes() map[netip.Prefix]learned {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.table)
}

func (p *peer) sessions() (established int, up bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.established, p.session != nil
}

// longHold is longer than a busy machine is silent: no session ends by it unless the test
// says so.
const longHold = time.Minute

// identity is that of a session from this node to the peer.
func (p *peer) identity() desired.Identity {
	return desired.Identity{
		MyASN: nodeASN, PeerASN: routerASN, PeerAddress: p.addr().Addr(), PeerPort: p.addr().Port(),
		RouterID: netip.MustParseAddr("192.0.2.1"), HoldTime: longHold, KeepaliveTime: longHold / 3,
		GracefulRestart: true, NextHop4: netip.MustParseAddr("198.51.100.2"), NextHop6: netip.MustParseAddr("2001:db8::2"),
	}
}

func send(conn net.Conn, message *packet.BGPMessage) {
	raw, err := message.Serialize()
	if err != nil {
		panic(err)
	}
	_, _ = conn.Write(raw) // whoever reads sees that the connection is gone
}

func receive(conn net.Conn) (*packet.BGPMessage, error) {
	header := make([]byte, packet.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(conn, header); err != nil {
		return nil, err
	}
	var h packet.BGPHeader
	if err := h.DecodeFromBytes(header); err != nil {
		return nil, err
	}
	body := make([]byte, int(h.Len)-len(header))
	if _, err := io.ReadFull(conn, body); err != nil {
		return nil, err
	}
	return packet.ParseBGPBody(&h, body)
}
