package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/controller/firstcontact"
	"fairlead.dev/fairlead/controller/hellokey"
	"fairlead.dev/fairlead/controller/leasefence"
	"fairlead.dev/fairlead/controller/passwords"
	"fairlead.dev/fairlead/controller/reconcile"
	"fairlead.dev/fairlead/controller/uninstall"
	"fairlead.dev/fairlead/internal/apiservers"
	"fairlead.dev/fairlead/internal/eventsink"
	"fairlead.dev/fairlead/internal/relist"
	"fairlead.dev/fairlead/internal/run"
	"fairlead.dev/fairlead/internal/serve/secure"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// leaseName is the name of the lease that the leader holds. One that is told to stop
// gives it back, so that an upgrade does not wait for it to run out.
const leaseName = "fairlead-controller"

// options are what flags and environment say.
type options struct {
	classes      view.Classes
	requests     fromkube.Requests
	nodes        fromkube.Nodes
	pods         []netip.Prefix // that pods get their addresses from
	apiServers   []string       // where speakers reach them
	namespace    string         // where the lease and the Secrets are
	leaderElect  bool
	lease        leasefence.Lease
	metrics      secure.Options
	probeAddress string
}

// control is the controller. It returns when the context ends, or with the error
// that it cannot go on with, such as that of a lease that was lost.
func control(ctx context.Context, cluster *rest.Config, o options, registry prometheus.Registerer, logger *slog.Logger) error {
	fence := leasefence.New(o.lease)
	served := o.metrics.ForManager(cluster, logger) // the fence would stop the reviews of a replica that does not lead
	cluster = apiservers.AskAgain(relist.AfterRestore(cluster), logger)
	if o.leaderElect {
		cluster = fence.Guard(cluster)
	}
	if begin, err := firstcontact.Await(ctx, cluster, o.probeAddress, logger); !begin {
		return err
	}
	m, err := newManager(cluster, o, served, logger)
	if err != nil {
		return err
	}
	recorder, stop, err := eventsink.Record(ctx, m, "fairlead.dev/controller", logger)
	if err != nil {
		return err
	}
	defer stop()
	numbers, err := reconcile.NewMetrics(registry)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	loop, err := reconcile.New(ctx, reconcile.Options{
		Namespace: o.namespace,
		Classes:   o.classes,
		Requests:  o.requests,
		Nodes:     o.nodes,
		Own:       reconcile.Own{Pods: o.pods, APIServers: addressesOf(cluster, o.apiServers)},
		Cache:     m.GetCache(),
		Live:      m.GetAPIReader(),
		Client:    m.GetClient(),
		Events:    recorder,
		Logger:    logger,
		Metrics:   numbers,

		WriteTimeout: o.lease.WriteTimeout(),
	})
	if err != nil {
		return fmt.Errorf("begin to watch the cluster: %w", err)
	}
	tasks := []run.Task{loop, fence}
	if err := errors.Join(
		m.Add(manager.RunnableFunc(func(ctx context.Context) error { return run.All(ctx, tasks...) })), // on the leader only
		hellokey.Add(m, o.namespace, o.lease.WriteTimeout(), recorder, logger),
		passwords.Add(m, o.namespace, o.lease.WriteTimeout(), logger),
		m.AddHealthzCheck("ping", healthz.Ping),
		m.AddReadyzCheck("synced", func(*http.Request) error { return run.Ready(tasks...) }),
	); err != nil {
		return err
	}
	return m.Start(ctx)
}

// addressesOf are where the controller and others reach API servers, which may be addresses that no Node and no endpoint of theirs
// has, such as that of a balancer before them. Names are left out.
func addressesOf(cluster *rest.Config, others []string) (all []netip.Addr) {
	hosts := make([]string, 0, 1+len(others))
	if server, _, err := rest.DefaultServerUrlFor(cluster); err == nil {
		hosts = append(hosts, server.Hostname())
	}
	for _, server := range others {
		if host, _, err := net.SplitHostPort(server); err == nil {
			hosts = append(hosts, host)
		}
	}
	for _, host := range hosts {
		if a, err := netip.ParseAddr(host); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}

func newManager(cluster *rest.Config, o options, metrics server.Options, logger *slog.Logger) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1beta1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	m, err := manager.New(cluster, manager.Options{
		Scheme:                        scheme,
		Logger:                        logr.FromSlogHandler(logger.Handler()),
		Cache:                         reconcile.CacheOptions(o.namespace, passwords.Role),
		Metrics:                       metrics,
		HealthProbeBindAddress:        o.probeAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true, // the process ends when control returns
		LeaseDuration:                 &o.lease.Duration,
		RenewDeadline:                 &o.lease.Renew,
		RetryPeriod:                   &o.lease.Retry,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare to run: %w", err)
	}
	return m, nil
}

// answerWithin is how long the API server may take for an answer.
const answerWithin = 15 * time.Second

// leave takes the addresses out of the statuses of Services, as the chart's hook before an uninstall. An error
// says how to uninstall without.
func leave(ctx context.Context, args []string, namespace string) error {
	if len(args) > 0 {
		return fmt.Errorf("controller uninstall takes no argument %q", args[0])
	}
	cluster, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	cluster.Timeout = answerWithin
	c, err := client.New(cluster, client.Options{Scheme: clientgoscheme.Scheme})
	if err == nil {
		log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
		err = uninstall.Run(ctx, c, client.ObjectKey{Namespace: namespace, Name: leaseName}, log)
	}
	if err != nil {
		return fmt.Errorf("%w; Services keep addresses in their statuses that nobody will answer for: try again, or uninstall with "+
			"helm uninstall --no-hooks and clear them as docs/guide/restores.md shows", err)
	}
	return nil
}
