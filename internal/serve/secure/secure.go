// Package secure serves metrics, and if asked to over TLS, to clients that the API server lets read them.
package secure

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"fairlead.dev/fairlead/internal/serve"
)

// Options are what the flags say.
type Options struct {
	Address string // where metrics are served
	Pulse   string // where pulse serves its own on this machine, "" if it serves them to all
	Off     bool   // no metrics are served
	On      bool   // they are served over TLS
	Dir     string // has tls.crt and tls.key; "": the program makes a certificate
}

// Register adds the flags.
func (o *Options) Register(flags *flag.FlagSet) {
	flags.BoolVar(&o.Off, "metrics-off", false, "serve no metrics")
	flags.BoolVar(&o.On, "metrics-secure", false, "serve metrics over TLS, to those alone whom the API server lets read them: by TokenReview and SubjectAccessReview")
	flags.StringVar(&o.Dir, "metrics-certificate-dir", "", "with --metrics-secure: where tls.crt and tls.key are, which may change at any time; empty: a certificate is made")
}

// validFor is how long a certificate that is made here is valid. No client can verify it, so none is kept out sooner.
const validFor = 10 * 365 * 24 * time.Hour

// TLS returns the configuration of a server with the certificate in a directory, or one of its own where dir is empty. Until a
// certificate can be read, the server shows its own, since the kubelet asks it for readiness, and later the last one.
func TLS(dir string, log *slog.Logger) *tls.Config {
	c := &certificate{dir: dir, log: log}
	// HTTP/2 would let one client hold up many requests.
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: c.get}
}

// certificate is what a server shows.
type certificate struct {
	dir string
	log *slog.Logger

	mu    sync.Mutex // guards what follows
	shown *tls.Certificate
	read  string // what shown was made of
	told  string
}

// get returns the certificate as it is now. The error is that none can be made.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.renew()
	text := fmt.Sprint(err)
	switch {
	case text == c.told:
	case err != nil:
		c.log.Error("the certificate of the metrics cannot be used, and the one before is shown, or one that no client can verify: "+
			"put a certificate and its key into the Secret that the chart's metrics.certificateSecret names", "dir", c.dir, "error", err)
	case c.dir != "":
		c.log.Info("metrics have their certificate", "dir", c.dir)
	}
	c.told = text
	if c.shown == nil {
		if c.shown, err = selfMade(); err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
	}
	return c.shown, nil
}

// renew reads the certificate of the directory, if there is one, and parses it if it has changed. The error says what is
// wrong with it. The kubelet changes the files of a Secret at once, and two that are not of one Secret do not match.
func (c *certificate) renew() error {
	if c.dir == "" {
		return nil
	}
	chain, err := os.ReadFile(filepath.Join(c.dir, "tls.crt"))
	key, keyErr := os.ReadFile(filepath.Join(c.dir, "tls.key"))
	if err := errors.Join(err, keyErr); err != nil {
		return err
	}
	read := string(chain) + string(key)
	if read == c.read {
		return nil
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return err
	}
	c.shown, c.read = &pair, read
	return nil
}

// selfMade returns a certificate that is signed by its own key, or the error of the system's randomness.
func selfMade() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "fairlead-metrics"}, DNSNames: []string{"fairlead-metrics"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validFor),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Serve serves metrics, those of pulse if it is asked to, and health until ctx ends. The error is that of the client of the
// API server.
func (o *Options) Serve(ctx context.Context, metrics http.Handler, ready func() error, cluster *rest.Config, log *slog.Logger) error {
	paths := map[string]http.Handler{}
	if !o.Off {
		paths["/metrics"] = metrics
		if o.Pulse != "" {
			paths["/metrics/pulse"] = serve.Relay(o.Pulse)
		}
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
	if o.Off {
		how.BindAddress = "0" // the manager's word for nowhere
	}
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
