package bgp

import (
	"context"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/server"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/lastwords"
)

// deferral is the least that GoBGP allows between Established and sending
// routes when the peer announces an End-of-RIB and does not send it. GoBGP
// counts whole seconds, and takes 0 for six minutes.
const deferral = time.Second

// loopback is where relays are.
const loopback = "127.0.0.1"

// daemon is one GoBGP server with one peer. Routes of a server go to all its
// peers, and only deleting a route withdraws it, so that what a peer gets is
// decided by giving it a server of its own.
//
// Calls are answered by the server's own goroutine, which never waits for a
// peer. After stop nothing may be called.
type daemon struct {
	bgp    *server.BgpServer
	served chan struct{} // closed when the server's goroutine has ended
	broken chan any      // receives what the server panicked with; it serves on

	relay *relay // of a passive session, nil before the router has dialed

	cancelWatch context.CancelFunc
	managed     chan struct{} // receives once a management operation is done
	quit        atomic.Bool
}

// startDaemon starts a server without a peer. Every change of the peer's state
// goes to events, in order, until the watch is cancelled.
func startDaemon(name string, id desired.Identity, log *tap, events chan<- *api.Peer) (*daemon, error) {
	d := &daemon{served: make(chan struct{}), broken: make(chan any, 1), managed: make(chan struct{}, 1)}
	d.bgp = server.NewBgpServer(server.LoggerOption(log), server.TimingHookOption(d))
	lastwords.Label(CrashLabel, crashLabel(name, id), func() {
		go func() {
			defer close(d.served)
			for d.serve() {
			}
		}()
	})
	ctx, cancel := context.WithCancel(context.Background())
	d.cancelWatch = cancel
	if err := d.configure(ctx, id, events); err != nil {
		d.stop()
		d.free()
		return nil, err
	}
	return d, nil
}

// serve serves until the goroutine ends or GoBGP panics, and tells whether it did. GoBGP
// does so for an OPEN on a session that is up, say; no router may end the sessions with all
// others. What the server was at is lost, and its next message finds it as before.
func (d *daemon) serve() (panicked bool) {
	defer func() {
		if cause := recover(); cause != nil {
			panicked = true
			select {
			case d.broken <- cause:
			default:
			}
		}
	}()
	d.bgp.Serve()
	return false
}

func (d *daemon) configure(ctx context.Context, id desired.Identity, events chan<- *api.Peer) error {
	err := d.bgp.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: id.MyASN, RouterId: id.RouterID.String(), ListenPort: -1, // -1: no listener
	}})
	if err != nil {
		return err
	}
	if err := d.rejectImports(ctx); err != nil {
		return err
	}
	return d.bgp.WatchEvent(ctx, &api.WatchEventRequest{Peer: &api.WatchEventRequest_Peer{}}, func(r *api.WatchEventResponse) {
		// Only hand over: the server waits for its watchers when it is called.
		if event := r.GetPeer(); event.GetType() == api.WatchEventResponse_PeerEvent_STATE {
			select {
			case events <- event.Peer:
			case <-ctx.Done():
			}
		}
	})
}

// rejectImports drops whatever the peer announces. Our own routes pass the same
// policy, and match neither statement.
func (d *daemon) rejectImports(ctx context.Context) error {
	reject := &api.Policy{Name: "reject-imports"}
	for name, routes := range map[string]api.Conditions_RouteType{
		"internal": api.Conditions_ROUTE_TYPE_INTERNAL,
		"external": api.Conditions_ROUTE_TYPE_EXTERNAL,
	} {
		reject.Statements = append(reject.Statements, &api.Statement{
			Name:       name,
			Conditions: &api.Conditions{RouteType: routes},
			Actions:    &api.Actions{RouteAction: api.RouteAction_REJECT},
		})
	}
	if err := d.bgp.AddPolicy(ctx, &api.AddPolicyRequest{Policy: reject}); err != nil {
		return err
	}
	return d.bgp.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name:          "global",
		Direction:     api.PolicyDirection_IMPORT,
		Policies:      []*api.Policy{reject},
		DefaultAction: api.RouteAction_ACCEPT,
	}})
}

// Observe is called by the server's goroutine after each operation. GoBGP has
// no way to end that goroutine; ending it from within is what we have.
func (d *daemon) Observe(op server.FSMOperation, _, _ time.Duration) {
	if op != server.FSMMgmtOp {
		return
	}
	if d.quit.Load() {
		runtime.Goexit()
	}
	select {
	case d.managed <- struct{}{}:
	default:
	}
}

// stop ends the session, with a CEASE if it is up. It may take up to the hold
// time if the peer does not read.
func (d *daemon) stop() {
	// The watch ends by an operation of its own, which must come before the end
	// of the server's goroutine.
	select {
	case <-d.managed:
	default:
	}
	d.cancelWatch()
	select {
	case <-d.managed:
	case <-time.After(time.Second):
	}
	_ = d.bgp.StopBgp(context.Background(), &api.StopBgpRequest{}) // fails for a nil request only
}

// free ends the server's goroutine after stop.
func (d *daemon) free() {
	d.quit.Store(true)
	_ = d.bgp.StopBgp(context.Background(), &api.StopBgpRequest{})
	<-d.served
}

// addPeer starts dialing: the first attempt comes after one to two seconds.
func (d *daemon) addPeer(id desired.Identity) error {
	connect := id.ConnectTime
	if connect == 0 {
		connect = defaultConnectTime
	}
	peer := &api.Peer{
		Conf: &api.PeerConf{
			NeighborAddress: neighborOf(id),
			PeerAsn:         id.PeerASN,
			LocalAsn:        id.MyASN,
			AuthPassword:    string(id.Password),
		},
		Transport: &api.Transport{RemotePort: uint32(id.PeerPort), BindInterface: id.Interface},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime:          seconds(holdTime(id)),
			KeepaliveInterval: seconds(id.KeepaliveTime),
			ConnectRetry:      seconds(connect),
		}},
		EbgpMultihop: &api.EbgpMultihop{Enabled: id.EBGPMultiHop},
		TtlSecurity:  ttlSecurity(id),
		AfiSafis:     families(id),
		State:        &api.PeerState{}, // families are read only where this is set
	}
	if id.SourceAddress.IsValid() {
		peer.Transport.LocalAddress = id.SourceAddress.WithZone("").String()
	}
	if id.Passive {
		// The relay has the password and the TTL.
		peer.Transport.RemotePort, peer.Transport.LocalAddress = uint32(d.relay.port()), loopback
		peer.Conf.AuthPassword = ""
		peer.TtlSecurity = &api.TtlSecurity{}
	}
	if id.GracefulRestart {
		// The forwarding of our addresses is in the kernel and outlives both
		// this process and the session. GoBGP says so (the F bit) only as a
		// restarting speaker; on a first start there is nothing to keep.
		peer.GracefulRestart = &api.GracefulRestart{
			Enabled:         true,
			RestartTime:     uint32(restartTime.Seconds()),
			DeferralTime:    uint32(deferral.Seconds()),
			LocalRestarting: true,
		}
	}
	return d.bgp.AddPeer(context.Background(), &api.AddPeerRequest{Peer: peer})
}

// neighborOf is how GoBGP knows the peer. A link-local address has no zone there, since GoBGP
// would set TCP MD5 for no address at all then: the socket is bound to the interface.
// The peer of a passive session is the relay.
func neighborOf(id desired.Identity) string {
	if id.Passive {
		return loopback
	}
	return id.PeerAddress.WithZone("").String()
}

// over has the peer be reached by a relay: next hops that are the session's own address are
// those of the router's connection then.
func (d *daemon) over(r *relay, routes map[netip.Prefix]route, id desired.Identity) error {
	moved := d.relay == nil || d.relay.local.Addr() != r.local.Addr()
	d.relay = r
	if !moved {
		return nil
	}
	for prefix, has := range routes {
		if err := d.addRoute(prefix, has, id); err != nil {
			return err
		}
	}
	return nil
}

// resolved has the address of a relayed session for one that is its own.
func (d *daemon) resolved(r route) route {
	if d.relay != nil && r.nextHop.IsUnspecified() {
		r.nextHop = d.relay.local.Addr()
	}
	return r
}

func (d *daemon) deletePeer(id desired.Identity) error {
	return d.bgp.DeletePeer(context.Background(), &api.DeletePeerRequest{Address: neighborOf(id)})
}

// resetPeer ends the session with a CEASE; the peer stays.
func (d *daemon) resetPeer(id desired.Identity) error {
	return d.bgp.ResetPeer(context.Background(), &api.ResetPeerRequest{Address: neighborOf(id)})
}

// peer reads the one peer, nil if there is none.
func (d *daemon) peer() (peer *api.Peer) {
	_ = d.bgp.ListPeer(context.Background(), &api.ListPeerRequest{}, func(p *api.Peer) { peer = p }) // fails for a nil request only
	return peer
}

func (d *daemon) addRoute(prefix netip.Prefix, r route, id desired.Identity) error {
	path, err := renderPath(prefix, d.resolved(r), id)
	if err == nil {
		_, err = d.bgp.AddPath(context.Background(), &api.AddPathRequest{Path: path})
	}
	return err
}

func (d *daemon) deleteRoute(prefix netip.Prefix, r route, id desired.Identity) error {
	path, err := renderPath(prefix, d.resolved(r), id)
	if err == nil {
		err = d.bgp.DeletePath(context.Background(), &api.DeletePathRequest{Path: path})
	}
	return err
}

func afiSafi(afi api.Family_Afi, gracefulRestart bool) *api.AfiSafi {
	return &api.AfiSafi{
		Config:            &api.AfiSafiConfig{Family: &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST}, Enabled: true},
		MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: gracefulRestart}},
	}
}

// seconds rounds up, since BGP counts whole seconds. 0 stays 0: GoBGP's default.
func seconds(d time.Duration) uint64 {
	return uint64((d + time.Second - 1) / time.Second)
}
