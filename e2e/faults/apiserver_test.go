package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"fairlead.dev/fairlead/e2e/product"
)

// apiPort is where Fairlead, and nothing else, reaches the API server.
const apiPort = 6444

// apiServer passes on what it is asked to the API server, and spoils the answers.
type apiServer struct {
	upstream *httputil.ReverseProxy

	mu       sync.Mutex
	spoil    func(http.ResponseWriter, *http.Request) (answered bool) // nil: nothing is spoilt
	withhold chan struct{}                                            // answers wait until it is closed; nil: they do not
	era      context.Context                                          // at whose end all requests under way are cut
	cut      context.CancelFunc
}

// newAPI serves in the control plane's place until the test ends.
func newAPI(t *testing.T, c *product.Cluster) *apiServer {
	t.Helper()
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	a := &apiServer{}
	a.era, a.cut = context.WithCancel(context.Background())
	a.upstream = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(at) },
		FlushInterval: -1,
		Transport: &http.Transport{
			DialContext: c.ControlPlane.Dial, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		},
		ModifyResponse: func(r *http.Response) error {
			r.Body = &withheld{r.Body, a, r.Request.Context()}
			return a.wait(r.Request.Context())
		},
		ErrorLog:     log.New(io.Discard, "", 0), // what is cut is cut on purpose
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	var listener net.Listener
	err = c.ControlPlane.Inside(func() (err error) {
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprintf(":%d", apiPort))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := c.ServerCertificate()
	server := &http.Server{Handler: a, ReadHeaderTimeout: time.Minute, ErrorLog: a.upstream.ErrorLog}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, certificate, key) }()
	t.Cleanup(func() {
		a.cutAll()
		if err := errors.Join(server.Close(), <-served); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return a
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	spoil, era := a.spoil, a.era
	a.mu.Unlock()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(era, cancel)()
	r = r.WithContext(ctx)
	if spoil == nil || !spoil(w, r) {
		a.upstream.ServeHTTP(w, r)
	}
}

// cutAll cuts all requests under way.
func (a *apiServer) cutAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cut()
	a.era, a.cut = context.WithCancel(context.Background())
}

// wait waits for as long as answers are withheld. It is an error if the request ends before.
func (a *apiServer) wait(ctx context.Context) error {
	a.mu.Lock()
	until := a.withhold
	a.mu.Unlock()
	if until == nil {
		return nil
	}
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withheld is the body of an answer.
type withheld struct {
	io.ReadCloser
	api *apiServer
	ctx context.Context
}

func (w *withheld) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if ended := w.api.wait(w.ctx); ended != nil {
		return 0, ended
	}
	return n, err
}

// spoilUntilEnd spoils answers until the test ends.
func (a *apiServer) spoilUntilEnd(t *testing.T, spoil func(http.ResponseWriter, *http.Request) bool) {
	t.Helper()
	set := func(to func(http.ResponseWriter, *http.Request) bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.spoil = to
	}
	set(spoil)
	t.Cleanup(func() { set(nil) })
}

// refuse answers a request with a Status.
func refuse(w http.ResponseWriter, code int, reason string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":%q,"message":"a fault","code":%d}`, reason, code)
	return true
}

// byTheAPIServer are the faults of an API server: it refuses, has forgotten, is slow, or is heard by nobody.
func byTheAPIServer() []fault {
	return []fault{
		{
			name: "the API server has too much to do", gate: true, excused: excuses{unheard: true},
			inject: func(t *testing.T, k *kit, _ *rand.Rand) {
				k.api.spoilUntilEnd(t, func(w http.ResponseWriter, _ *http.Request) bool {
					w.Header().Set("Retry-After", "1")
					return refuse(w, http.StatusTooManyRequests, "TooManyRequests")
				})
				k.api.cutAll()
			},
		},
		{
			name: "the API server has forgotten",
			inject: func(t *testing.T, k *kit, r *rand.Rand) {
				inStream := r.IntN(2) == 0
				k.api.spoilUntilEnd(t, func(w http.ResponseWriter, r *http.Request) bool {
					query := r.URL.Query()
					if version := query.Get("resourceVersion"); query.Get("watch") == "" || version == "" || version == "0" {
						return false
					}
					if !inStream {
						return refuse(w, http.StatusGone, "Expired")
					}
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","message":"a fault","code":410}}`+"\n")
					return true
				})
				k.api.cutAll()
			},
			// Each list is followed by a watch that is refused, and clients wait longer and longer before the next.
			excused: excuses{unheard: true},
		},
		{
			name: "the API server is slow",
			inject: func(t *testing.T, k *kit, r *rand.Rand) {
				takes := time.Duration(1+r.IntN(3)) * time.Second
				k.api.spoilUntilEnd(t, func(_ http.ResponseWriter, r *http.Request) bool {
					select {
					case <-time.After(takes):
					case <-r.Context().Done():
					}
					return false
				})
			},
		},
		{
			name: "the API server hears and is not heard", excused: excuses{unheard: true},
			inject: func(t *testing.T, k *kit, _ *rand.Rand) {
				k.api.mu.Lock()
				defer k.api.mu.Unlock()
				until := make(chan struct{})
				k.api.withhold = until
				t.Cleanup(func() {
					k.api.mu.Lock()
					defer k.api.mu.Unlock()
					k.api.withhold = nil
					close(until)
				})
			},
		},
	}
}
