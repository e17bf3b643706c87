package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/internal/run"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/report"
	"fairlead.dev/fairlead/speaker/report/standing"
)

// standings are the objects in which the node tells how it does.
type standings struct {
	api        client.WithWatch
	sessions   *standing.Sessions
	addresses  *standing.Addresses
	doubts     *standing.Doubts
	witness    *standing.Witness
	forwarding *standing.Forwardings
}

func tellIn(c config, config *rest.Config) (standings, error) {
	objects, err := ourObjects(config)
	if err != nil {
		return standings{}, err
	}
	doubts, err := doubtsOf(c, config)
	if err != nil {
		return standings{}, err
	}
	return standings{
		api:        objects,
		sessions:   standing.NewSessions(c.node, objects, c.log),
		addresses:  standing.NewAddresses(c.node, objects, c.log),
		doubts:     doubts,
		witness:    standing.NewWitness(c.node, objects, c.log),
		forwarding: standing.NewForwardings(c.node, objects, c.log),
	}, nil
}

// reporter has what becomes known of this node told there, in Events and in metrics.
func (s standings) reporter(c config, recorder events.EventRecorder, backend forwarding.Backend, registry *prometheus.Registry) *report.Reporter {
	return report.New(report.Config{
		Node: c.node, Recorder: recorder, Sessions: s.sessions, Addresses: s.addresses, Doubts: s.doubts, Witness: s.witness,
		Forwarder: report.Forwarder{Kernel: backend, Mode: string(c.mode), Off: c.mode == forwarding.None, Into: s.forwarding},
		Metrics:   registry, Log: c.log,
	})
}

// tasks keep them.
func (s standings) tasks() []run.Task {
	return []run.Task{
		run.Func("keeping the BGPSessions", s.sessions.Run),
		run.Func("keeping the L2Addresses", s.addresses.Run),
		run.Func("noting doubts about L2Addresses", s.doubts.Run),
		run.Func("speaking for nodes that are not heard", s.witness.Run),
		run.Func("keeping the NodeForwarding", s.forwarding.Run),
		following("the BGPSessions", s.sessions, s.api),
		following("the L2Addresses", s.addresses, s.api),
		following("the doubts about L2Addresses", s.doubts, s.api),
		following("the NodeForwarding", s.forwarding, s.api),
	}
}

// doubt has those written again that other nodes mark when they do not hear this one.
func (s standings) doubt() {
	s.sessions.Doubt()
	s.addresses.Doubt()
	s.doubts.Doubt()
	s.forwarding.Doubt()
}

// leave removes them, as the node goes for good.
func (s standings) leave(ctx context.Context, log *slog.Logger) {
	for _, objects := range []interface {
		Leave(ctx context.Context) error
	}{s.sessions, s.addresses, s.doubts, s.forwarding} {
		if err := objects.Leave(ctx); err != nil {
			log.Warn("objects of this node stay behind", "error", err)
		}
	}
}

// follower notices that others have touched objects of the node.
type follower interface {
	Follow(ctx context.Context, api standing.Watcher) error
}

func following(objects string, f follower, api standing.Watcher) run.Task {
	return run.Func("watching "+objects, func(ctx context.Context) error { return f.Follow(ctx, api) })
}
