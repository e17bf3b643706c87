package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/controller/hellokey"
	"fairlead.dev/fairlead/controller/reconcile"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
)

// The lease. A leader that cannot renew gives up after renewDeadline, and nobody
// takes over before leaseDuration: what lies between is for writes under way to
// end. One that is told to stop gives the lease back, so that an upgrade does
// not wait for any of this.
const (
	leaseName     = "fairlead-controller"
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// options are what flags and environment say.
type options struct {
	classes        view.Classes
	requests       fromkube.Requests
	namespace      string // where the lease and the Secrets are
	leaderElect    bool
	metricsAddress string
	probeAddress   string
}

// run is the controller. It returns when the context ends, or with the error
// that it cannot go on with: the API server does not know our kinds, or the
// lease was lost.
func run(ctx context.Context, cluster *rest.Config, o options, registry prometheus.Registerer, logger *slog.Logger) error {
	m, err := newManager(cluster, o, logger)
	if err != nil {
		return err
	}
	numbers, err := reconcile.NewMetrics(registry)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	loop, err := reconcile.New(ctx, reconcile.Options{
		Classes:  o.classes,
		Requests: o.requests,
		Cache:    m.GetCache(),
		Live:     m.GetAPIReader(),
		Client:   m.GetClient(),
		Events:   m.GetEventRecorder("fairlead.dev/controller"),
		Logger:   logger,
		Metrics:  numbers,
	})
	if err != nil {
		return fmt.Errorf("%w (are the CRDs of %s installed?)", err, v1beta1.GroupVersion)
	}
	if err := errors.Join(
		m.Add(loop),
		hellokey.Add(m, o.namespace, logger),
		m.AddHealthzCheck("ping", healthz.Ping),
		m.AddReadyzCheck("synced", loop.Synced),
	); err != nil {
		return err
	}
	return m.Start(ctx)
}

func newManager(cluster *rest.Config, o options, logger *slog.Logger) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1beta1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	lease, renew, retry := leaseDuration, renewDeadline, retryPeriod
	m, err := manager.New(cluster, manager.Options{
		Scheme:                        scheme,
		Logger:                        logr.FromSlogHandler(logger.Handler()),
		Cache:                         reconcile.CacheOptions(o.namespace),
		Metrics:                       server.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.probeAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true, // the process ends when run returns
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", cluster.Host, err)
	}
	return m, nil
}
