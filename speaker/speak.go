package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/internal/run"
	"fairlead.dev/fairlead/internal/serve"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/wake"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/forwarding/rivals"
	"fairlead.dev/fairlead/speaker/pulse"
	"fairlead.dev/fairlead/speaker/report"
	"fairlead.dev/fairlead/speaker/report/standing"
	"fairlead.dev/fairlead/speaker/watch"
)

// Times of the speaker.
const (
	// resync is how often the whole state is applied although nothing changed. What
	// others did to our rules is noticed sooner.
	resync = 10 * time.Second
	// sessionsEvery is how often the BGP sessions are looked at for what no
	// notice tells of, such as the number of prefixes.
	sessionsEvery = 10 * time.Second
	// lookoutEvery is how often other service proxies are looked for.
	lookoutEvery = 30 * time.Second
	// farewell bounds what is done between the signal to stop and the exit.
	farewell = 5 * time.Second
	// drainFor is how long routers have to prefer other paths before ours are withdrawn.
	// They know the others already, and have to tell their forwarding only.
	drainFor = 2 * time.Second
)

// clientQPS and clientBurst bound what one speaker asks of the API server, which is
// hardly more than watches and Events.
const (
	clientQPS   = 20
	clientBurst = 40
)

// speak wires the parts together and runs them until ctx ends.
func speak(ctx context.Context, c config) error {
	ctrl.SetLogger(logr.FromSlogHandler(c.log.Handler()))
	klog.SetSlogLogger(c.log)
	c.log.Info("speaker begins", "version", version, "node", c.node, "forwarding", string(c.mode))
	c.nodePorts.tell(c.log)
	config, kube, err := connect()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	backend, err := forwarding.New(forwarding.Config{
		Mode: c.mode, Log: c.log, Metrics: registry, RouteLocalnet: c.routeLocalnet,
		Conntrack: c.conntrack, ConntrackDir: c.conntrackDir,
	})
	if err != nil {
		return err
	}
	told, err := tellIn(c, config)
	if err != nil {
		return err
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: kube.EventsV1()})
	reporter := told.reporter(c, broadcaster.NewRecorder(clientgoscheme.Scheme, "fairlead-speaker"), backend, registry)

	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	asked := newHealth(c, reporter, registry, metrics)
	cluster := watch.New(watch.Config{REST: config, Node: c.node, Namespace: c.namespace, Speakers: speakerLabels(), Nodes: c.nodes, Log: c.log, Noted: func(kind string) {
		reporter.Changed(kind)
		asked.Changed()
	}})
	pulses := pulse.NewClient(c.pulseSocket, c.log)
	answers := &layer2{node: c.node, client: pulses}
	sessions := bgp.New(c.log)
	sessions.ListenOn(c.bgpPort)
	registry.MustRegister(traffic{sessions.States})
	disturbed := make(chan struct{}, 1)
	loop := agent.New(agent.Config{
		Options:    c.options(),
		Source:     cluster,
		Forwarding: &settling{Forwarder: backend},
		Disturbed:  disturbed,
		Health:     asked,
		Layer2:     answers,
		BGP:        routes{sessions},
		Reporter:   reporter,
		Log:        c.log,
		Resync:     resync,
		Grace:      drainFor,
	})

	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("prepare to record Events: %w", err)
	}
	defer broadcaster.Shutdown()

	hangUp := talk(ctx, pulses)
	err = run.All(ctx, append(told.tasks(),
		run.Task{Name: "watching the cluster", Run: cluster.Run},
		run.Task{Name: "the agent", Run: loop.Run},
		run.Task{Name: "watching the kernel", Run: func(ctx context.Context) error { return watchKernel(ctx, backend, disturbed) }},
		run.Task{Name: "reporting", Run: func(ctx context.Context) error {
			return follow(ctx, pulses, cluster, sessions, reporter, told.sessions, told.addresses, told.doubts)
		}},
		run.Task{Name: "looking for what breaks layer 2", Run: func(ctx context.Context) error { return survey(ctx, answers, reporter, c.log) }},
		run.Task{Name: "looking for other service proxies", Run: func(ctx context.Context) error { return lookout(ctx, c, reporter) }},
		run.Task{Name: "serving metrics and health", Run: func(ctx context.Context) error {
			answer(ctx, c, metrics, reporter.Ready)
			return nil
		}},
		run.Task{Name: "answering for health", Run: asked.Run},
	)...)
	err = errors.Join(err, part(kube, c, cluster.Snapshot(), loop, sessions, told.sessions, told.addresses, told.doubts, told.forwarding))
	return errors.Join(err, hangUp())
}

// talk keeps in touch with pulse until the very end, also after ctx has ended: leaving is told to it last.
func talk(ctx context.Context, pulses *pulse.Client) (hangUp func() error) {
	talking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- pulses.Run(talking) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// connect prepares the clients of the API server. Nothing is sent yet.
func connect() (*rest.Config, kubernetes.Interface, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("find the API server: %w", err)
	}
	config.QPS, config.Burst = clientQPS, clientBurst
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	return config, kube, nil
}

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
		{Name: "keeping the BGPSessions", Run: s.sessions.Run},
		{Name: "keeping the L2Addresses", Run: s.addresses.Run},
		{Name: "noting doubts about L2Addresses", Run: s.doubts.Run},
		{Name: "speaking for nodes that are not heard", Run: s.witness.Run},
		{Name: "keeping the NodeForwarding", Run: s.forwarding.Run},
		following("the BGPSessions", s.sessions, s.api),
		following("the L2Addresses", s.addresses, s.api),
		following("the doubts about L2Addresses", s.doubts, s.api),
		following("the NodeForwarding", s.forwarding, s.api),
	}
}

// follower notices that others have touched objects of the node.
type follower interface {
	Follow(ctx context.Context, api standing.Watcher) error
}

func following(objects string, f follower, api standing.Watcher) run.Task {
	return run.Task{Name: "watching " + objects, Run: func(ctx context.Context) error { return f.Follow(ctx, api) }}
}

// watchKernel tells, until ctx ends, that the forwarding is to be applied again, as when
// others changed the rules.
func watchKernel(ctx context.Context, backend forwarding.Backend, disturbed chan<- struct{}) error {
	backend.Watch(ctx, func() {
		wake.Fill(disturbed)
	})
	return nil
}

// leaver keeps objects of the node, and removes them when it goes for good.
type leaver interface {
	Leave(ctx context.Context) error
}

// part says farewell. A restart keeps everything: forwarding is in the kernel, pulse
// goes on or asks for patience, and routers keep our routes. Only a speaker that goes
// for good hands over.
func part(kube kubernetes.Interface, c config, cluster *view.Cluster, loop *agent.Agent, sessions *bgp.Speaker, kept ...leaver) error {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	asking, answered := context.WithTimeout(ctx, patience)
	reason, forGood := goesForGood(asking, kube, c, cluster)
	answered()
	if !forGood {
		c.log.Info("stopping; this node goes on serving and the speaker is expected back")
		return sessions.Close(ctx, false)
	}
	c.log.Info("stopping for good; other nodes take over", "reason", reason)
	err := errors.Join(loop.Leave(ctx), sessions.Close(ctx, true))
	for _, objects := range kept {
		if left := objects.Leave(ctx); left != nil {
			c.log.Warn("objects of this node stay behind", "error", left)
		}
	}
	return err
}

// doubter keeps objects of the node that others mark when they do not hear it.
type doubter interface{ Doubt() }

// follow hands on what pulse and the sessions say: all of it to the reporter, and to the
// cluster's view who is alive. What others may have marked of this node is written again.
func follow(ctx context.Context, pulses *pulse.Client, cluster *watch.Watch, sessions *bgp.Speaker, reporter *report.Reporter, marked ...doubter) error {
	ticker := time.NewTicker(sessionsEvery)
	defer ticker.Stop()
	paths, alone := paths{}, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pulses.Changed():
			state, there := pulses.State()
			cluster.Call(rollCall(state))
			before := alone
			if alone = unheard(state, there); before && !alone {
				for _, objects := range marked {
					objects.Doubt()
				}
			}
			reporter.Owns(ownerships(state, there))
			if there { // one that is away has not heard that a contest is over
				cluster.Adjoin(state.Adjacent)
				cluster.Precede(state.Former)
				reporter.Contests(contests(state), doubts(state))
				reporter.Stands(report.Network{CutOff: state.CutOff, Left: state.Left, Links: state.CutLinks})
			}
			for peer, why := range paths.failed(state.BFD) {
				sessions.Cut(peer, why)
			}
			reporter.BFD(bfdOf(state.BFD))
		case <-sessions.Changed():
			reporter.Sessions(sessionsOf(sessions))
		case <-ticker.C:
			reporter.Sessions(sessionsOf(sessions))
			reporter.Refresh()
		}
	}
}

// lookout looks now and then whether another service proxy is at work where we are.
func lookout(ctx context.Context, c config, reporter *report.Reporter) error {
	if c.mode == forwarding.None {
		<-ctx.Done()
		return nil
	}
	failing := ""
	for {
		found, err := rivals.Find(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failing = ""
		case err.Error() != failing:
			failing = err.Error()
			c.log.Warn("cannot look everywhere for rules of other service proxies", "error", err)
		}
		reporter.Rivals(found, err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookoutEvery):
		}
	}
}

// answer serves /metrics, /healthz and /readyz until ctx ends.
func answer(ctx context.Context, c config, metrics http.Handler, ready func() bool) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "the kernel has not been brought to the cluster's state yet", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	serve.HTTP(ctx, c.httpAddress, mux, c.log)
}
