package secure

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"fairlead.dev/fairlead/internal/serve"
)

// Serve serves metrics, those of pulse if it is asked to, and health until ctx ends. The error is that of the client of the
// API server.
func (o *Options) Serve(ctx context.Context, metrics http.Handler, ready func() error, cluster *rest.Config, log *slog.Logger) error {
	paths := map[string]http.Handler{"/metrics": metrics}
	if o.Pulse != "" {
		paths["/metrics/pulse"] = serve.Relay(o.Pulse)
	}
	var certificate *tls.Config
	if o.On {
		certificate = TLS(o.Dir, log)
		for path, handler := range paths {
			reviewed, err := Reviewed(cluster, log, handler)
			if err != nil {
				return err
			}
			paths[path] = reviewed
		}
	}
	serve.HTTPS(ctx, o.Address, certificate, serve.Probes(paths, ready), log)
	return nil
}

// ForManager returns how a manager of controller-runtime serves metrics.
func (o *Options) ForManager(cluster *rest.Config, log *slog.Logger) server.Options {
	how := server.Options{BindAddress: o.Address}
	if o.On {
		ours := TLS(o.Dir, log)
		how.SecureServing = true
		how.TLSOpts = []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion, c.NextProtos, c.GetCertificate = ours.MinVersion, ours.NextProtos, ours.GetCertificate
		}}
		how.FilterProvider = func(*rest.Config, *http.Client) (server.Filter, error) {
			return func(_ logr.Logger, handler http.Handler) (http.Handler, error) {
				return Reviewed(cluster, log, handler)
			}, nil
		}
	}
	return how
}
