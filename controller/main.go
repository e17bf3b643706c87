// Command controller gives external addresses to Services of type LoadBalancer
// and to IPReservations, and reports the outcome in their status and in that of pools,
// advertisements and peers. Of several replicas one leads; the others stand by. "controller uninstall"
// takes the addresses out of the statuses of Services, before the others are removed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/go-logr/logr"

	"fairlead.dev/fairlead/controller/leasefence"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/apiservers"
	"fairlead.dev/fairlead/internal/asynclog"
	"fairlead.dev/fairlead/internal/memlimit"
	"fairlead.dev/fairlead/internal/serve"
)

const defaultNamespace = "fairlead-system"

// collectAt is by how many percent the memory may grow before garbage is collected, unless
// GOGC says otherwise. A pass makes little garbage, and most memory is what informers hold.
const collectAt = 50

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		asynclog.LastWords("controller: " + err.Error())
		os.Exit(1)
	}
}

// command reads the flags and runs the controller until the context ends, or what the first argument names.
func command(ctx context.Context, args []string) error {
	o := options{namespace: os.Getenv("POD_NAMESPACE"), lease: leasefence.Standard()}
	if o.namespace == "" {
		o.namespace = defaultNamespace
	}
	if len(args) > 0 && args[0] == "uninstall" {
		return leave(ctx, args[1:], o.namespace)
	}
	var level slog.Level
	flags := flag.NewFlagSet("controller", flag.ContinueOnError)
	flags.StringVar(&o.classes.Name, "load-balancer-class", "", "spec.loadBalancerClass of the Services to handle; empty: those without a class")
	flags.BoolVar(&o.classes.Unclassed, "serve-unclassed", false, "handle Services without a class as well as those of --load-balancer-class")
	flags.BoolVar(&o.requests.MetalLB, "metallb-annotations", true, "follow MetalLB's annotations on Services where ours are missing")
	flags.BoolVar(&o.nodes.IgnoreExclude, "ignore-exclude-lb", false, "take it that speakers announce from nodes with the label node.kubernetes.io/exclude-from-external-load-balancers, too")
	flags.Func("cluster-cidrs", "where pods get their addresses from beside the podCIDRs of nodes, CIDRs separated by commas: no Service gets one of these", func(text string) (err error) {
		o.pods, err = addr.ParsePrefixes(text)
		return err
	})
	flags.Func("api-servers", "where speakers reach the API servers, HOST:PORT separated by commas: no Service gets one of these addresses", func(text string) (err error) {
		o.apiServers, err = apiservers.Parse(text)
		return err
	})
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "let one replica lead at a time; needed with more than one")
	flags.DurationVar(&o.lease.Duration, "leader-elect-lease-duration", o.lease.Duration, "how long after the leader was last heard of another replica takes over")
	flags.DurationVar(&o.lease.Renew, "leader-elect-renew-deadline", o.lease.Renew, "how long a leader that cannot renew its lease goes on; less than the lease duration")
	flags.DurationVar(&o.lease.Retry, "leader-elect-retry-period", o.lease.Retry, "how long to wait between two tries to get or renew the lease")
	flags.StringVar(&o.metrics.Address, "metrics-bind-address", ":7472", "where to serve /metrics; 0: nowhere")
	o.metrics.Register(flags)
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", ":7473", "where to serve /healthz and /readyz; 0: nowhere")
	flags.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}

	if err := memlimit.Apply(); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	lines := asynclog.Start(asynclog.Stderr())
	defer lines.Close(asynclog.Within)
	if err := errors.Join(metrics.Registry.Register(lines.Lost()), metrics.Registry.Register(serve.BuildInfo(version))); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	logger := slog.New(slog.NewJSONHandler(lines, &slog.HandlerOptions{Level: level}))
	log.SetLogger(logr.FromSlogHandler(logger.Handler()))
	klog.SetSlogLogger(logger)
	cluster, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	logger.Info("controller begins", "version", version)
	return control(ctx, cluster, o, metrics.Registry, logger)
}
