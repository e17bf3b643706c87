package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
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

	"fairlead.dev/fairlead/internal/apiservers"
	"fairlead.dev/fairlead/internal/eventsink"
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
	"fairlead.dev/fairlead/speaker/pulse/socket"
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

// speak runs a speaker until ctx ends, with more metrics than it has by itself. The error joins those of its parts.
func speak(ctx context.Context, c flags.Config, more ...prometheus.Collector) error {
	ctrl.SetLogger(logr.FromSlogHandler(c.Log.Handler()))
	klog.SetSlogLogger(c.Log)
	c.Log.Info("speaker begins", "version", version, "node", c.Node, "forwarding", string(c.Mode))
	servers := apiservers.New(c.Node, c.APIServers, c.Log)
	config, kube, err := connect(servers)
	if err != nil {
		return err
	}
	p, err := wire(c, config, kube, servers, more)
	if err != nil {
		return err
	}
	if err := p.events.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("prepare to record Events: %w", err)
	}
	defer p.events.Shutdown()
	disconnect := connectPulse(ctx, p.pulse)
	tasks := tasksOf(p, c)
	err = run.All(ctx, append(tasks, run.Func("serving metrics and health", func(ctx context.Context) error {
		return c.Metrics.Serve(ctx, p.metrics, func() error { return run.Ready(tasks...) }, config, c.Log)
	}))...)
	err = errors.Join(err, shutdown.Speaker{Node: c.Node, Namespace: c.Namespace, DaemonSet: c.DaemonSet}.Run(kube, p.cluster.Snapshot(),
		shutdown.Parts{Leave: p.agent.Leave, Close: p.sessions.Close, Remove: p.objects.Remove}, c.Log))
	return errors.Join(err, disconnect())
}

// parts are what a speaker consists of.
type parts struct {
	agent     *agent.Agent
	cluster   *watch.Watch
	kernel    *forwarding.Forwarder
	disturbed chan struct{} // other programs have changed the kernel
	pulse     *socket.Client
	layer2    *bridge.Layer2
	sessions  *bgp.Speaker
	checks    *health.Node
	reporter  *report.Reporter
	objects   *statuswriter.Objects
	events    events.EventBroadcaster
	metrics   http.Handler
}

// wire makes the parts. The error is that of a part that cannot work with the flags.
func wire(c flags.Config, config *rest.Config, kube kubernetes.Interface, servers *apiservers.Servers, more []prometheus.Collector) (p parts, err error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(append(more, servers)...)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.metrics = serve.Metrics(registry)
	if p.kernel, err = forwarding.New(forwarding.Config{
		Mode: c.Mode, Log: c.Log, Metrics: registry, RouteLocalnet: c.RouteLocalnet,
		Conntrack: c.Conntrack, ConntrackDir: c.ConntrackDir, Settled: giveMemoryBack,
	}); err != nil {
		return p, err
	}
	if p.objects, err = statuswriter.New(c.Node, config, c.Log); err != nil {
		return p, err
	}
	p.events = eventsink.NewBroadcaster(kube.EventsV1())
	reporting := report.Config{
		Node: c.Node, Recorder: p.events.NewRecorder(clientgoscheme.Scheme, "fairlead-speaker"), Objects: p.objects,
		Mode: string(c.Mode), Metrics: registry, Log: c.Log,
	}
	if c.Mode != forwarding.None {
		reporting.Kernel = p.kernel
	}
	p.reporter = report.New(reporting)
	p.checks = health.New(health.Config{
		Off: c.Mode == forwarding.None, Node: c.Node, ProxyAddress: c.ProxyHealth, StatusAddress: c.ProxyStatus,
		Status: health.Status(string(c.Mode), p.metrics), Failed: p.reporter.HealthCheckFailed, Metrics: registry, Log: c.Log,
	})
	p.cluster = watch.New(watch.Config{
		REST: config, Node: c.Node, Namespace: c.Namespace, Speakers: speakerLabels(), DaemonSet: c.DaemonSet, Nodes: c.Nodes,
		OwnPods: c.Desired.Pods.OwnNode && c.Mode != forwarding.None, Log: c.Log,
		Noted: func(kind string) {
			p.reporter.Changed(kind)
			p.checks.Changed()
		},
		Unread: p.reporter.Unread, Unreached: p.reporter.Unreached,
	})
	p.pulse = socket.NewClient(c.PulseSocket, c.Log)
	p.layer2 = bridge.NewLayer2(p.pulse)
	p.sessions = bgp.New(c.Log)
	p.sessions.ListenOn(c.BGPPort)
	registry.MustRegister(p.sessions)
	p.disturbed = make(chan struct{}, 1)
	p.agent = agent.New(agent.Config{
		Options: c.Desired, Source: p.cluster, Forwarding: p.kernel, Disturbed: p.disturbed, Health: p.checks,
		Layer2: p.layer2, BGP: bridge.Routes{Speaker: p.sessions}, Reporter: bridge.Learning{Reporter: p.reporter, Servers: servers}, Log: c.Log, Resync: resync, Grace: bridge.DrainFor,
	})
	return p, nil
}

// tasksOf returns what runs all the time.
func tasksOf(p parts, c flags.Config) []run.Task {
	tasks := []run.Task{
		p.objects,
		run.Func("watching the cluster", p.cluster.Run),
		run.Func("the agent", p.agent.Run),
		run.Func("watching the kernel", func(ctx context.Context) error {
			p.kernel.Watch(ctx, func() { signal.Send(p.disturbed) })
			return nil
		}),
		&bridge.Bridge{Layer2: p.layer2, Sessions: p.sessions, Cluster: p.cluster, Kernel: p.kernel, Reporter: p.reporter, Resync: p.objects.Resync},
		nodechecks.Layer2(p.layer2.Settled, p.reporter, c.Log),
		nodechecks.Networks(p.reporter, c.Log),
		run.Func("answering for health", p.checks.Run),
	}
	if c.Mode != forwarding.None {
		tasks = append(tasks, nodechecks.Kernel(p.kernel, p.sessions, p.reporter, c.Log), run.Func("forgetting ended connections", p.kernel.SweepEnded),
			run.Func("freeing reused ports", func(ctx context.Context) error {
				p.kernel.FreeReusedPorts(ctx)
				return nil
			}))
	}
	return tasks
}

// speakerLabels are the labels that the chart gives to the speaker's pods.
func speakerLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "fairlead", "app.kubernetes.io/component": "speaker"}
}

// connectPulse stays connected with pulse until disconnect, also after ctx has ended: that the node leaves is the
// last thing that pulse is told. disconnect returns the error of the connection.
func connectPulse(ctx context.Context, client *socket.Client) (disconnect func() error) {
	connected, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- client.Run(connected) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// connect prepares the clients of the API servers. Nothing is sent yet. The error is that of the configuration.
func connect(servers *apiservers.Servers) (*rest.Config, kubernetes.Interface, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("find the API server: %w", err)
	}
	config = servers.Reach(config)
	config.QPS, config.Burst = clientQPS, clientBurst
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare the Kubernetes client: %w", err)
	}
	return config, kube, nil
}

// garbage is how much may gather until it is collected, in percent of what lives, once a
// speaker has settled. It holds the cluster for days and allocates little for a change:
// Go's own 100 % would take memory from every node to save some milliseconds of a CPU a
// minute.
const garbage = 50

// giveMemoryBack returns to the system what reading the cluster and writing all of its rules took for a
// moment, and has garbage collected sooner from then on, unless the environment says GOGC. Before that
// nothing slows the node's first rules down.
func giveMemoryBack() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	debug.FreeOSMemory()
}
