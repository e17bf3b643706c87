package main

import (
	"context"
	"errors"
	"fmt"
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
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/bridge"
	"fairlead.dev/fairlead/speaker/flags"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/health"
	"fairlead.dev/fairlead/speaker/nodechecks"
	"fairlead.dev/fairlead/speaker/pulse"
	"fairlead.dev/fairlead/speaker/report"
	"fairlead.dev/fairlead/speaker/report/statuswriter"
	"fairlead.dev/fairlead/speaker/shutdown"
	"fairlead.dev/fairlead/speaker/watch"
)

// resync is how often the whole state is applied although nothing changed. What other programs do to our rules is
// noticed sooner.
const resync = 10 * time.Second

// clientQPS and clientBurst bound the requests of one speaker to the API server, which are
// hardly more than watches and Events.
const (
	clientQPS   = 20
	clientBurst = 40
)

// speak wires the parts together and runs them until ctx ends.
func speak(ctx context.Context, c flags.Config) error {
	ctrl.SetLogger(logr.FromSlogHandler(c.Log.Handler()))
	klog.SetSlogLogger(c.Log)
	c.Log.Info("speaker begins", "version", version, "node", c.Node, "forwarding", string(c.Mode))
	config, kube, err := connect()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	backend, err := forwarding.New(forwarding.Config{
		Mode: c.Mode, Log: c.Log, Metrics: registry, RouteLocalnet: c.RouteLocalnet,
		Conntrack: c.Conntrack, ConntrackDir: c.ConntrackDir,
	})
	if err != nil {
		return err
	}
	objects, err := statuswriter.New(c.Node, config, c.Log)
	if err != nil {
		return err
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: kube.EventsV1()})
	reporting := report.Config{
		Node: c.Node, Recorder: broadcaster.NewRecorder(clientgoscheme.Scheme, "fairlead-speaker"), Objects: objects,
		Mode: string(c.Mode), Metrics: registry, Log: c.Log,
	}
	off := c.Mode == forwarding.None
	if !off {
		reporting.Kernel = backend
	}
	reporter := report.New(reporting)
	metrics := serve.Metrics(registry)
	checks := health.New(health.Config{
		Off: off, Node: c.Node, ProxyAddress: c.ProxyHealth, StatusAddress: c.ProxyStatus,
		Status: health.Status(string(c.Mode), metrics), Failed: reporter.HealthCheckFailed, Metrics: registry, Log: c.Log,
	})
	cluster := watch.New(watch.Config{
		REST: config, Node: c.Node, Namespace: c.Namespace, Speakers: speakerLabels(), DaemonSet: c.DaemonSet, Nodes: c.Nodes,
		OwnPods: c.Desired.Pods.OwnNode && !off, Log: c.Log,
		Noted: func(kind string) {
			reporter.Changed(kind)
			checks.Changed()
		},
		Unread: reporter.Unread, Unreached: reporter.Unreached,
	})
	client := pulse.NewClient(c.PulseSocket, c.Log)
	layer2 := bridge.NewLayer2(c.Node, client)
	sessions := bgp.New(c.Log)
	sessions.ListenOn(c.BGPPort)
	registry.MustRegister(sessions)
	disturbed := make(chan struct{}, 1)
	loop := agent.New(agent.Config{
		Options: c.Desired, Source: cluster, Forwarding: &settling{Forwarder: backend}, Disturbed: disturbed, Health: checks,
		Layer2: layer2, BGP: bridge.Routes{Speaker: sessions}, Reporter: reporter, Log: c.Log, Resync: resync, Grace: bridge.DrainFor,
	})

	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("prepare to record Events: %w", err)
	}
	defer broadcaster.Shutdown()
	disconnect := connectPulse(ctx, client)
	tasks := []run.Task{
		objects,
		run.Func("watching the cluster", cluster.Run),
		run.Func("the agent", loop.Run),
		run.Func("watching the kernel", func(ctx context.Context) error {
			backend.Watch(ctx, func() { signal.Send(disturbed) })
			return nil
		}),
		&bridge.Bridge{Layer2: layer2, Sessions: sessions, Cluster: cluster, Reporter: reporter, Resync: objects.Resync},
		nodechecks.Layer2(layer2.Settled, reporter, c.Log),
		run.Func("answering for health", checks.Run),
	}
	if !off {
		tasks = append(tasks, nodechecks.Kernel(reporter, c.Log))
	}
	probes := serve.Probes(metrics, func() error { return run.Ready(tasks...) })
	err = run.All(ctx, append(tasks, run.Func("serving metrics and health", func(ctx context.Context) error {
		serve.HTTP(ctx, c.HTTPAddress, probes, c.Log)
		return nil
	}))...)
	err = errors.Join(err, shutdown.Speaker{Node: c.Node, Namespace: c.Namespace, DaemonSet: c.DaemonSet}.Run(kube, cluster.Snapshot(),
		shutdown.Parts{Leave: loop.Leave, Close: sessions.Close, Remove: objects.Remove}, c.Log))
	return errors.Join(err, disconnect())
}

// speakerLabels are the labels that the chart gives to the speaker's pods.
func speakerLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "fairlead", "app.kubernetes.io/component": "speaker"}
}

// connectPulse stays connected with pulse until disconnect, also after ctx has ended: that the node leaves is the
// last thing that pulse is told. disconnect returns the error of the connection.
func connectPulse(ctx context.Context, client *pulse.Client) (disconnect func() error) {
	connected, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- client.Run(connected) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// connect prepares the clients of the API server. Nothing is sent yet. The error is that of the configuration.
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
