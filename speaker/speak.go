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
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"fairlead.dev/fairlead/internal/run"
	"fairlead.dev/fairlead/internal/serve"
	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack/sysctl"
	"fairlead.dev/fairlead/speaker/forwarding/foreignproxy"
	"fairlead.dev/fairlead/speaker/pulse"
	"fairlead.dev/fairlead/speaker/report"
	"fairlead.dev/fairlead/speaker/watch"
)

// Times of the speaker.
const (
	// resync is how often the whole state is applied although nothing changed. What
	// others did to our rules is noticed sooner.
	resync = 10 * time.Second
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

	metrics := serve.Metrics(registry)
	asked := newHealth(c, reporter, registry, metrics)
	cluster := watch.New(watch.Config{
		REST: config, Node: c.node, Namespace: c.namespace, Speakers: speakerLabels(), DaemonSet: c.daemonSet, Nodes: c.nodes, OwnPods: c.pods.OwnNode && c.mode != forwarding.None, Log: c.log,
		Noted: func(kind string) {
			reporter.Changed(kind)
			asked.Changed()
		},
		Unread: reporter.Unread, Unreached: reporter.Unreached,
	})
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
	tasks := append(told.tasks(),
		run.Func("watching the cluster", cluster.Run),
		run.Func("the agent", loop.Run),
		run.Func("watching the kernel", func(ctx context.Context) error { return watchKernel(ctx, backend, disturbed) }),
		&feed{answers: answers, sessions: sessions, cluster: cluster, reporter: reporter, told: told},
		run.Func("looking for what breaks layer 2", func(ctx context.Context) error { return survey(ctx, answers, reporter, c.log) }),
		run.Func("looking at what else is in the kernel", func(ctx context.Context) error { return lookout(ctx, c, reporter) }),
		run.Func("answering for health", asked.Run),
	)
	err = run.All(ctx, append(tasks, run.Func("serving metrics and health", func(ctx context.Context) error {
		answer(ctx, c, metrics, func() error { return run.Ready(tasks...) })
		return nil
	}))...)
	err = errors.Join(err, part(kube, c, cluster.Snapshot(), loop, sessions, told))
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

// watchKernel tells, until ctx ends, that the forwarding is to be applied again, as when
// others changed the rules.
func watchKernel(ctx context.Context, backend forwarding.Backend, disturbed chan<- struct{}) error {
	backend.Watch(ctx, func() {
		signal.Send(disturbed)
	})
	return nil
}

// part says farewell. A restart keeps everything: forwarding is in the kernel, pulse
// goes on or asks for patience, and routers keep our routes. Only a speaker that goes
// for good hands over.
func part(kube kubernetes.Interface, c config, cluster *view.Cluster, loop *agent.Agent, sessions *bgp.Speaker, told standings) error {
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
	told.leave(ctx, c.log)
	return err
}

// lookout looks now and then whether another service proxy is at work where we are, and whether the
// kernel has room for more connections.
func lookout(ctx context.Context, c config, reporter *report.Reporter) error {
	if c.mode == forwarding.None {
		<-ctx.Done()
		return nil
	}
	failing := ""
	for {
		found, err := foreignproxy.Find(ctx)
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
		if flows, room, err := sysctl.Fill(sysctl.Dir); err == nil { // there may be no such table yet
			reporter.Connections(flows, room)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookoutEvery):
		}
	}
}

// answer serves /metrics, /healthz and /readyz until ctx ends.
func answer(ctx context.Context, c config, metrics http.Handler, ready func() error) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	serve.HTTP(ctx, c.httpAddress, mux, c.log)
}
