// Package command is the program of the pulse container: it reads the flags,
// puts the hello mesh, the responders and the link watcher together, and
// serves metrics and health.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/asynclog"
	"fairlead.dev/fairlead/internal/serve"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse"
	"fairlead.dev/fairlead/speaker/pulse/adjacency"
	"fairlead.dev/fairlead/speaker/pulse/arp"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/pulse/handover"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/linkcheck"
	"fairlead.dev/fairlead/speaker/pulse/ndp"
	"fairlead.dev/fairlead/speaker/pulse/untracked"
)

// options are the flags.
type options struct {
	node       string
	socket     string
	port       uint
	interval   time.Duration
	multiplier int
	damping    time.Duration
	metrics    string
	metricsOff bool
	realtime   bool
	handOver   bool
	level      slog.Level
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("pulse", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.node, "node-name", os.Getenv("NODE_NAME"), "name of this node in Kubernetes; by default $NODE_NAME")
	f.StringVar(&o.socket, "socket", "/run/fairlead/pulse.sock", "unix socket on which the agent hands over what to do")
	f.UintVar(&o.port, "hello-port", 7475, "UDP port of the hellos, the same on all nodes")
	f.DurationVar(&o.interval, "hello-interval", 50*time.Millisecond, "longest time between two hellos to a node; 1ms for each node where that is more")
	f.IntVar(&o.multiplier, "hello-multiplier", 3, "so many intervals of silence mean that a node is dead, or more where hellos are late or lost")
	f.DurationVar(&o.damping, "damping", 3*time.Minute, "a node that dies for the second time within it comes last for as long, and longer each time; 0: never")
	f.StringVar(&o.metrics, "metrics-bind-address", ":7476", "address that serves /metrics, /healthz and /readyz; empty: none")
	f.BoolVar(&o.metricsOff, "metrics-off", false, "serve no metrics")
	f.BoolVar(&o.realtime, "realtime", true, "ask the kernel to run pulse before ordinary processes, so that a busy node is not taken for a dead one")
	f.BoolVar(&o.handOver, "hand-over", true, "hand over to the node that had an address before what belongs to connections from then; false where another proxy forwards")
	f.TextVar(&o.level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: pulse takes only flags", f.Arg(0))
	case o.node == "":
		return o, errors.New("the node's name is not known: set NODE_NAME from spec.nodeName, or --node-name")
	case o.port == 0 || o.port > 65535:
		return o, fmt.Errorf("--hello-port=%d: must be 1 to 65535", o.port)
	case o.damping < 0:
		return o, fmt.Errorf("--damping=%v: must be 0 or more", o.damping)
	}
	return o, nil
}

// Run is the whole program; it ends well when the context does. Logs go to
// stderr. It fails on bad flags and if the socket cannot be opened.
func Run(ctx context.Context, args []string, stderr io.Writer, more ...prometheus.Collector) error {
	return run(ctx, hasJustBooted, args, stderr, more...)
}

// run is Run on a machine that has just booted, or not.
func run(ctx context.Context, booted func(*slog.Logger) bool, args []string, stderr io.Writer, more ...prometheus.Collector) error {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	lines := asynclog.Start(stderr)
	defer lines.Close(asynclog.Within)
	log := slog.New(slog.NewJSONHandler(lines, &slog.HandlerOptions{Level: o.level}))
	threads := &realtime{policies: policies(), log: log}
	if o.realtime {
		startThreads()
		threads.schedule()
	}
	p, err := assemble(o, booted(log), log)
	if err != nil {
		return err
	}
	defer p.routers.Close()

	// The mesh and BFD outlive the server, which says goodbye through them.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	start := func(what string, task func(context.Context) error) {
		tasks.Go(func() {
			if err := task(background); err != nil {
				log.Error("a part of pulse ended", "part", what, "error", err)
			}
		})
	}
	start("hello mesh", p.mesh.Run)
	start("hellos on other interfaces", p.apart.Run)
	start("link watcher", p.watcher.Run)
	start("BFD", p.sessions.Run)
	start("hand-over of open connections", p.handing.Run)
	start("hellos and BFD without connection tracking", untracked.New(uint16(o.port), log).Run)
	if o.metrics != "" {
		handler := handler(p.server, o.metricsOff, append(more, lines.Lost(), &p.collector)...)
		tasks.Go(func() { serve.HTTP(background, o.metrics, handler, log) })
	}
	if o.realtime {
		tasks.Go(func() { threads.run(background) })
	}
	tasks.Go(func() {
		if err := guard(background, p.server.Healthy); err != nil {
			lines.Close(asynclog.Within)
			debug.SetTraceback("all") // what waits for what is all that can be learned of it
			panic(err)
		}
	})
	log.Info("pulse runs", "node", o.node, "socket", o.socket, "helloPort", o.port,
		"detectionTime", (o.interval * time.Duration(o.multiplier)).String())
	err = p.server.Run(ctx)
	stop()
	tasks.Wait()
	return err
}

// parts are what pulse is made of.
type parts struct {
	collector

	watcher *links.Watcher
	routers *adjacency.Finder
	handing *handover.Handover
}

// assemble puts them together, and returns an error for options that hello refuses.
func assemble(o options, booted bool, log *slog.Logger) (p *parts, err error) {
	p = &parts{watcher: links.NewWatcher(log), routers: adjacency.New(log), handing: handover.New(log)}
	p.watcher.Greets = true
	if p.mesh, err = hello.New(hello.Config{Node: o.node, Port: uint16(o.port), Interval: o.interval, Multiplier: o.multiplier, Log: log}); err != nil {
		return nil, err
	}
	p.apart = linkcheck.New(linkcheck.Config{Node: o.node, Interval: o.interval, Multiplier: o.multiplier, Seal: p.mesh, Log: log})
	p.arp, p.ndp, p.sessions = arp.New(log), ndp.New(log), bfd.New(log)
	config := pulse.Config{
		Node: o.node, Socket: o.socket, Mesh: p.mesh, Links: p.watcher, ARP: p.arp, NDP: p.ndp, BFD: p.sessions,
		Adjacency: p.routers, LinkCheck: p.apart, Damping: o.damping, Booted: booted, Log: log,
	}
	if o.handOver {
		config.Handover = p.handing
	}
	p.server = pulse.NewServer(config)
	return p, nil
}

// bootTakes is for how long after its kernel a machine may still be starting. A pulse that is restarted within it asks for
// its addresses for some 100 ms before it answers again.
const bootTakes = 5 * time.Minute

// hasJustBooted tells whether this pulse is the first one since the machine was switched on, as far as can be told.
func hasJustBooted(log *slog.Logger) bool {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		log.Error("cannot read for how long this machine has been up: this start is taken for a restart", "error", err)
		return false
	}
	return time.Duration(up.Nano()) < bootTakes
}

// handler serves /metrics, unless they are off, /healthz and /readyz.
func handler(server *pulse.Server, off bool, metrics ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics...)
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	if !off {
		mux.Handle("/metrics", serve.Metrics(registry))
	}
	answer := func(path string, check func(context.Context) error) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			if err := check(ctx); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, "ok\n")
		})
	}
	answer("/healthz", server.Healthy)
	answer("/readyz", server.Ready)
	return mux
}
