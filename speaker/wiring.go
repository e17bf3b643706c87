package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/health"
	"fairlead.dev/fairlead/speaker/outcome"
	"fairlead.dev/fairlead/speaker/pulse"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/report"
)

// speakerLabels are the labels that the chart gives to the speaker's pods.
func speakerLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "fairlead", "app.kubernetes.io/component": "speaker"}
}

// layer2 hands the agent's answers to pulse.
type layer2 struct {
	node   string
	client *pulse.Client
	last   atomic.Pointer[agent.Answers] // what was handed over; nil: nothing yet
}

func (l *layer2) Apply(ctx context.Context, want agent.Answers) error {
	l.last.Store(&want)
	peers := make(map[string]hello.Peer, len(want.Mesh.Peers))
	for name, peer := range want.Mesh.Peers {
		peers[name] = hello.Peer{Addrs: peer.Addrs, Ready: peer.Ready}
	}
	_, err := l.client.Apply(ctx, pulse.Table{
		Node: l.node, NodeAddrs: want.Addrs, Peers: peers, Key: want.Mesh.Key,
		Serving: !want.Leaving, Unable: want.Unable, Leaving: want.Leaving, Claims: want.Claims, BFD: want.BFD,
		Elsewhere: want.Elsewhere, Unnumbered: want.Unnumbered,
	})
	if errors.Is(err, pulse.ErrAway) {
		return nil // the client tells of it, keeps the table and hands it over
	}
	return err
}

// asked is who tells load balancers and others whether this node serves.
type asked interface {
	agent.Health
	Changed()
	Run(ctx context.Context) error
}

func newHealth(c config, reporter *report.Reporter, registry prometheus.Registerer, metrics http.Handler) asked {
	if c.mode == forwarding.None {
		return unasked{}
	}
	return health.New(health.Config{
		Node: c.node, ProxyAddress: c.proxyHealth, StatusAddress: c.proxyStatus,
		Status: health.Status(string(c.mode), metrics), Failed: reporter.HealthCheckFailed,
		Metrics: registry, Log: c.log,
	})
}

// unasked is the health of a node that another proxy forwards and answers for.
type unasked struct{}

func (unasked) Begin(*view.Cluster) {}

func (unasked) Apply(desired.Node, outcome.Missing, error) {}

func (unasked) Changed() {}

func (unasked) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// routes hands the agent's sessions to BGP.
type routes struct{ speaker *bgp.Speaker }

func (r routes) Apply(ctx context.Context, want map[string]desired.Session) error {
	return r.speaker.Apply(ctx, want)
}

// Drain is bounded by the time for the farewell, of which the CEASE needs the rest.
func (r routes) Drain(ctx context.Context) error { return r.speaker.Drain(ctx, drainFor) }

// keyless tells whether there was no key of the hellos to hand over.
func (l *layer2) keyless() bool {
	last := l.last.Load()
	return last != nil && last.Mesh.Key == ""
}

// ownerships is what pulse answers for, as the reporter takes it; nil while that is not
// known: a pulse that is away or has just begun says nothing. One that got no key answers for
// nothing until there is one, which may take long.
func ownerships(s pulse.State, there, keyless bool) map[netip.Addr]report.Ownership {
	if !there || !s.Settled && !keyless {
		return nil
	}
	owned := make(map[netip.Addr]report.Ownership, len(s.Owned))
	for address, o := range s.Owned {
		owned[address] = report.Ownership(o)
	}
	return owned
}

// contests are the addresses that strangers have, as the reporter takes it.
func contests(s pulse.State) map[netip.Addr]report.Contest {
	contested := make(map[netip.Addr]report.Contest, len(s.Contested))
	for address, c := range s.Contested {
		contested[address] = report.Contest(c)
	}
	return contested
}

// doubts are the addresses of other nodes that are not answered for as they should be, as
// the reporter takes it.
func doubts(s pulse.State) map[netip.Addr]report.Doubt {
	doubted := make(map[netip.Addr]report.Doubt, len(s.Doubted))
	for address, d := range s.Doubted {
		doubted[address] = report.Doubt(d)
	}
	return doubted
}

// rollCall is who is alive and who is not. A pulse that has not listened for long enough
// knows of nobody's silence, and one that is away tells nothing.
func rollCall(s pulse.State) view.RollCall {
	if !s.Settled {
		return view.RollCall{}
	}
	return view.RollCall{Alive: s.Alive, Silent: s.Silent}
}

// unheard tells whether other nodes may not hear this one: its pulse is away, or as many nodes
// are silent as it hears.
func unheard(s pulse.State, there bool) bool {
	return !there || !s.Settled || len(s.Silent) > 0 && len(s.Silent) >= len(s.Alive)
}

// ourObjects is how the API server is asked for BGPSessions, L2Addresses and NodeForwardings.
func ourObjects(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("prepare the scheme: %w", err)
	}
	objects, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("prepare the client of our objects: %w", err)
	}
	return objects, nil
}

// sessionsOf is what the sessions are doing, as the reporter takes it.
func sessionsOf(s *bgp.Speaker) map[string]report.Session {
	have := s.States()
	if have == nil {
		return nil
	}
	states := make(map[string]report.Session, len(have))
	for peer, state := range have {
		session := report.Session{
			Up: state.Phase == bgp.Established, State: string(state.Phase), Since: state.Since,
			LastError: state.LastError, Overcome: state.Overcome, Advertised: state.Advertised, Pending: state.Pending,
			Prefixes: state.Prefixes,
			LeftOut:  map[addr.Family]string{}, Local: state.LocalAddress, PeerASN: state.PeerASN,
			Negotiated: report.Negotiated{
				GracefulRestart: state.GracefulRestart, FourOctetASN: state.FourOctetASN,
				HoldTime: state.HoldTime, KeepaliveTime: state.KeepaliveTime,
			},
		}
		for family, spoken := range map[addr.Family]bool{addr.IPv4: state.IPv4, addr.IPv6: state.IPv6} {
			if spoken {
				session.Families = append(session.Families, family)
			}
		}
		slices.Sort(session.Families)
		for _, u := range state.Unannounced {
			session.LeftOut[u.Family] = u.Err.Error()
		}
		states[peer] = session
	}
	return states
}
