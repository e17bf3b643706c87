package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	gobgplog "github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/server"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/speaker/desired"
)

// daemon is one GoBGP server with one peer. A server announces its routes to all its peers, and only
// deleting a route withdraws it: what one peer gets is decided by giving it a server of its own. Its
// import policy accepts everything, since the guard lets no UPDATE of a router through.
//
// Calls are answered by the server's own goroutine, which never waits for a peer. After stop nothing may
// be called.
type daemon struct {
	bgp    *server.BgpServer
	log    serverLog
	at     netip.AddrPort // where it accepts connections of relays
	served chan struct{}  // closed when the server's goroutine has ended

	cancelWatch context.CancelFunc
	managed     chan struct{} // receives once a management operation is done
	quit        atomic.Bool
}

// startDaemon starts a server without a peer, which sends every change of the peer's state to events, in order.
func startDaemon(id desired.Identity, log *slog.Logger, events chan<- *api.Peer) (*daemon, error) {
	d := &daemon{log: serverLog{log: log}, served: make(chan struct{}), managed: make(chan struct{}, 1)}
	d.bgp = server.NewBgpServer(server.LoggerOption(&d.log), server.TimingHookOption(d))
	go func() {
		defer close(d.served)
		d.bgp.Serve()
	}()
	ctx, cancel := context.WithCancel(context.Background())
	d.cancelWatch = cancel
	err := d.listen(ctx, id)
	if err == nil {
		err = d.bgp.WatchEvent(ctx, &api.WatchEventRequest{Peer: &api.WatchEventRequest_Peer{}}, func(r *api.WatchEventResponse) {
			// Only pass it on: the server waits for its watchers when it is called.
			if event := r.GetPeer(); event.GetType() == api.WatchEventResponse_PeerEvent_STATE {
				select {
				case events <- event.Peer:
				case <-ctx.Done():
				}
			}
		})
	}
	if err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// listen has the server accept connections at some address of the loopback, which are those of relays. GoBGP
// does not let the kernel choose a port, and another process may take it in between.
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

// Observe is called by the server's goroutine after each operation. GoBGP has no call that ends that
// goroutine; it can only end itself, from here.
func (d *daemon) Observe(op server.FSMOperation, _, _ time.Duration) {
	if op != server.FSMMgmtOp {
		return
	}
	if d.quit.Load() {
		runtime.Goexit()
	}
	signal.Send(d.managed)
}

// stop ends the session, with a CEASE if it is up, and the server's goroutine.
func (d *daemon) stop() {
	// The watch ends by an operation of its own, which must come before the end of the server's goroutine.
	select {
	case <-d.managed:
	default:
	}
	d.cancelWatch()
	select {
	case <-d.managed:
	case <-time.After(time.Second):
	}
	// StopBgp waits for peers that were deleted before only if it has a peer to delete itself. It fails for a nil
	// request only.
	_ = d.bgp.AddPeer(context.Background(), &api.AddPeerRequest{Peer: &api.Peer{Conf: &api.PeerConf{NeighborAddress: "127.0.0.1"}, Transport: &api.Transport{PassiveMode: true}}})
	_ = d.bgp.StopBgp(context.Background(), &api.StopBgpRequest{})
	d.quit.Store(true)
	_ = d.bgp.StopBgp(context.Background(), &api.StopBgpRequest{})
	<-d.served
}

// addPeer has the server wait for a relay. The error is that of GoBGP.
func (d *daemon) addPeer(id desired.Identity, r *relay) error {
	peer := &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: r.inside.String(), PeerAsn: id.PeerASN, LocalAsn: id.MyASN},
		Transport: &api.Transport{
			PassiveMode: true,
			// The session's own address as a next hop is that of the router's connection. The relay's connection
			// has another, which GoBGP accepts if it is given an interface; it uses that for nothing else.
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
		// The forwarding of our addresses is in the kernel and outlives both this process and the session.
		// GoBGP says so (the F bit) only as a restarting speaker; on a first start there is nothing to keep.
		peer.GracefulRestart = &api.GracefulRestart{
			Enabled:         true,
			RestartTime:     uint32(restartTime.Seconds()),
			LocalRestarting: true,
		}
	}
	return d.bgp.AddPeer(context.Background(), &api.AddPeerRequest{Peer: peer})
}

func families(id desired.Identity) (offered []*api.AfiSafi) {
	for _, family := range addr.Families() {
		afi := api.Family_AFI_IP
		if family == addr.IPv6 {
			afi = api.Family_AFI_IP6
		}
		if carries(id, family) {
			offered = append(offered, &api.AfiSafi{
				Config:            &api.AfiSafiConfig{Family: &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST}, Enabled: true},
				MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: id.GracefulRestart}},
			})
		}
	}
	return offered
}

// deletePeer ends the session of a relay, with a CEASE if it is up. The error is that of GoBGP.
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

// seconds rounds up, since BGP counts whole seconds. 0 stays 0: GoBGP's default.
func seconds(d time.Duration) uint64 {
	return uint64((d + time.Second - 1) / time.Second)
}

// serverLog is the logger of one GoBGP server. It logs errors as such and all else at debug level, since
// sessions log their own changes, and does not end the process as GoBGP's own logger does at Panic and Fatal.
type serverLog struct {
	log *slog.Logger
	// acceptFailed is set when the server has stopped accepting connections, as it does, for good, at the first
	// one that fails, such as while the process has all the files that it may have. GoBGP tells its log alone.
	acceptFailed atomic.Bool
}

func (l *serverLog) Panic(msg string, fields gobgplog.Fields) { l.pass(slog.LevelError, msg, fields) }

func (l *serverLog) Fatal(msg string, fields gobgplog.Fields) { l.pass(slog.LevelError, msg, fields) }

func (l *serverLog) Error(msg string, fields gobgplog.Fields) { l.pass(slog.LevelError, msg, fields) }

func (l *serverLog) Info(msg string, fields gobgplog.Fields) { l.pass(slog.LevelDebug, msg, fields) }

func (l *serverLog) Debug(msg string, fields gobgplog.Fields) { l.pass(slog.LevelDebug, msg, fields) }

// Warn logs at debug level, and notes that the server accepts no more connections.
func (l *serverLog) Warn(msg string, fields gobgplog.Fields) {
	if msg == "Failed to AcceptTCP" {
		l.acceptFailed.Store(true)
	}
	l.pass(slog.LevelDebug, msg, fields)
}

// SetLevel does nothing: the level is that of the slog handler.
func (l *serverLog) SetLevel(gobgplog.LogLevel) {}

// GetLevel returns debug if anything takes that, so that GoBGP does not render what nothing does.
func (l *serverLog) GetLevel() gobgplog.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return gobgplog.DebugLevel
	}
	return gobgplog.WarnLevel
}

func (l *serverLog) pass(level slog.Level, msg string, fields gobgplog.Fields) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, len(fields))
	for key, value := range fields {
		attrs = append(attrs, slog.String(key, fmt.Sprint(value)))
	}
	l.log.LogAttrs(context.Background(), level, "GoBGP says", append(attrs, slog.String("message", msg))...)
}
