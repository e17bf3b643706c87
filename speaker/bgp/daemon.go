package bgp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/server"

	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/speaker/desired"
)

// daemon is one GoBGP server with one peer. Routes of a server go to all its
// peers, and only deleting a route withdraws it, so that what a peer gets is
// decided by giving it a server of its own.
//
// Calls are answered by the server's own goroutine, which never waits for a
// peer. After stop nothing may be called.
type daemon struct {
	bgp    *server.BgpServer
	at     netip.AddrPort // where it takes connections of relays
	served chan struct{}  // closed when the server's goroutine has ended

	cancelWatch context.CancelFunc
	managed     chan struct{} // receives once a management operation is done
	quit        atomic.Bool
}

// startDaemon starts a server without a peer. Every change of the peer's state
// goes to events, in order, until the watch is cancelled.
func startDaemon(id desired.Identity, log *serverLog, events chan<- *api.Peer) (*daemon, error) {
	d := &daemon{served: make(chan struct{}), managed: make(chan struct{}, 1)}
	d.bgp = server.NewBgpServer(server.LoggerOption(log), server.TimingHookOption(d))
	go func() {
		defer close(d.served)
		d.bgp.Serve()
	}()
	ctx, cancel := context.WithCancel(context.Background())
	d.cancelWatch = cancel
	if err := d.configure(ctx, id, events); err != nil {
		d.stop()
		d.free()
		return nil, err
	}
	return d, nil
}

func (d *daemon) configure(ctx context.Context, id desired.Identity, events chan<- *api.Peer) error {
	if err := d.listen(ctx, id); err != nil {
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

// listen has the server take connections at some address of the loopback, which are those of
// relays. GoBGP does not let the kernel choose a port, and somebody may take it in between.
func (d *daemon) listen(ctx context.Context, id desired.Identity) error {
	const attempts = 10
	for n := 1; ; n++ {
		at, err := freePort(ctx, randomLoopback())
		if err != nil {
			return err
		}
		err = d.bgp.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
			Asn: id.MyASN, RouterId: id.RouterID.String(), ListenPort: int32(at.Port()), ListenAddresses: []string{at.Addr().String()},
		}})
		if err == nil || n == attempts || !errors.Is(err, syscall.EADDRINUSE) {
			d.at = at
			return err
		}
	}
}

func freePort(ctx context.Context, address netip.Addr) (netip.AddrPort, error) {
	var config net.ListenConfig
	socket, err := config.Listen(ctx, "tcp4", netip.AddrPortFrom(address, 0).String())
	if err != nil {
		return netip.AddrPort{}, err
	}
	return unmapped(socket.Addr()), socket.Close()
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
	signal.Send(d.managed)
}

// stop ends the session, with a CEASE if it is up.
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
	// It waits for peers that were deleted before, but only if it has one to delete.
	_ = d.bgp.AddPeer(context.Background(), &api.AddPeerRequest{Peer: &api.Peer{Conf: &api.PeerConf{NeighborAddress: "127.0.0.1"}, Transport: &api.Transport{PassiveMode: true}}})
	_ = d.bgp.StopBgp(context.Background(), &api.StopBgpRequest{}) // fails for a nil request only
}

// free ends the server's goroutine after stop.
func (d *daemon) free() {
	d.quit.Store(true)
	_ = d.bgp.StopBgp(context.Background(), &api.StopBgpRequest{})
	<-d.served
}

// addPeer has the server wait for a relay.
func (d *daemon) addPeer(id desired.Identity, r *relay) error {
	peer := &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: r.inside.String(), PeerAsn: id.PeerASN, LocalAsn: id.MyASN},
		Transport: &api.Transport{
			PassiveMode: true,
			// Next hops that are the session's own address are that of the router's
			// connection. GoBGP does not mind that the relay's has another where it is
			// told of an interface, which it does nothing else with.
			LocalAddress: r.local.Addr().WithZone("").String(), BindInterface: "lo",
		},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime:          seconds(id.HoldTime),
			KeepaliveInterval: seconds(id.KeepaliveTime),
		}},
		AfiSafis: families(id),
		State:    &api.PeerState{}, // families are read only where this is set
	}
	if id.GracefulRestart {
		// The forwarding of our addresses is in the kernel and outlives both
		// this process and the session. GoBGP says so (the F bit) only as a
		// restarting speaker; on a first start there is nothing to keep.
		peer.GracefulRestart = &api.GracefulRestart{
			Enabled:         true,
			RestartTime:     uint32(restartTime.Seconds()),
			LocalRestarting: true,
		}
	}
	return d.bgp.AddPeer(context.Background(), &api.AddPeerRequest{Peer: peer})
}

// deletePeer ends the session of a relay, with a CEASE if it is up.
func (d *daemon) deletePeer(r *relay) error {
	return d.bgp.DeletePeer(context.Background(), &api.DeletePeerRequest{Address: r.inside.String()})
}

func (d *daemon) addRoute(prefix netip.Prefix, r route, id desired.Identity) error {
	path, err := renderPath(prefix, r, id)
	if err == nil {
		_, err = d.bgp.AddPath(context.Background(), &api.AddPathRequest{Path: path})
	}
	return err
}

func (d *daemon) deleteRoute(prefix netip.Prefix, r route, id desired.Identity) error {
	path, err := renderPath(prefix, r, id)
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
