// Package firstcontact waits until the API server can be asked and has the kinds of this release.
package firstcontact

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/apihint"
	"fairlead.dev/fairlead/internal/serve"
)

// askAgain is the pause before an API server that cannot be used yet is asked again.
const askAgain = time.Second

// Await returns true once the API server answers and has our kinds, false if the context has ended before. Meanwhile the process lives on,
// since each restart by the kubelet would come later than the one before; it is not ready, and says why. The error is that of the configuration.
func Await(ctx context.Context, cluster *rest.Config, probes string, logger *slog.Logger) (bool, error) {
	api, err := discovery.NewDiscoveryClientForConfig(cluster)
	if err != nil {
		return false, fmt.Errorf("prepare to ask the API server: %w", err)
	}
	var waits atomic.Value
	serving, stop := context.WithCancel(ctx)
	var served sync.WaitGroup
	defer served.Wait() // the manager serves the same address
	defer stop()
	serveProbes := sync.OnceFunc(func() {
		if probes == "0" {
			return
		}
		ready := func() error { return waits.Load().(error) }
		served.Go(func() { serve.HTTP(serving, probes, serve.Probes(nil, ready), logger) })
	})
	for told := ""; ; {
		why := obstacle(api, cluster.Host)
		if why == "" {
			if old := apihint.Outdated(api); old != "" {
				logger.Error("the API server is too old", "hint", old)
			}
			return true, nil
		}
		if why != told {
			logger.Error("the controller waits", "reason", why)
			told = why
		}
		waits.Store(errors.New(why))
		serveProbes()
		select {
		case <-ctx.Done():
			return false, nil
		case <-time.After(askAgain):
		}
	}
}

// obstacle returns why the controller cannot begin, and what to do; "" if it can.
func obstacle(api discovery.DiscoveryInterface, host string) string {
	found, err := api.ServerResourcesForGroupVersion(v1beta1.GroupVersion.String())
	if err != nil && !apierrors.IsNotFound(err) {
		why, hint := apihint.Why(err, apihint.OfController)
		return fmt.Sprintf("the API server at %s cannot be asked: %s; %s", host, why, hint)
	}
	missing := ourKinds()
	if found != nil {
		missing = slices.DeleteFunc(missing, func(kind string) bool {
			return slices.ContainsFunc(found.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind })
		})
	}
	if len(missing) == 0 {
		return ""
	}
	fix := apihint.Outdated(api)
	if fix == "" {
		fix = apihint.InstallCRDs
	}
	return fmt.Sprintf("the cluster has no kind %s of %s: %s", strings.Join(missing, ", "), v1beta1.GroupVersion, fix)
}

// ourKinds are those of this release, sorted.
func ourKinds() (kinds []string) {
	scheme := runtime.NewScheme()
	_ = v1beta1.AddToScheme(scheme) // never fails
	for kind, of := range scheme.KnownTypes(v1beta1.GroupVersion) {
		if _, is := reflect.TypeAssert[client.Object](reflect.New(of)); is {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}
