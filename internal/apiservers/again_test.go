package apiservers

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// away fails until it is back.
type away struct {
	back   time.Time
	err    error
	status int // of what a proxy answers meanwhile, if not an error
	header http.Header
}

func (a away) RoundTrip(*http.Request) (*http.Response, error) {
	switch back := !time.Now().Before(a.back); {
	case back:
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	case a.err != nil:
		return nil, a.err
	}
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Header: a.header, Body: http.NoBody}, nil
}

// TestAWatchAwaitsTheAPIServer: however long none was there, a watch is taken within two seconds of its return.
func TestAWatchAwaitsTheAPIServer(t *testing.T) {
	const outage = 7 * time.Minute
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	stranger := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	for name, c := range map[string]struct {
		path   string
		server away
		waits  bool
	}{
		"refused":             {"/api/v1/services?watch=true", away{err: refused}, true},
		"cut off":             {"/api/v1/services?watch=true", away{err: errors.New("unexpected EOF")}, true},
		"a proxy's 503":       {"/api/v1/services?watch=true", away{status: http.StatusServiceUnavailable}, true},
		"busy":                {"/api/v1/services?watch=true", away{status: http.StatusServiceUnavailable, header: http.Header{"Retry-After": {"1"}}}, false},
		"throttled":           {"/api/v1/services?watch=true", away{status: http.StatusTooManyRequests}, false},
		"a foreign server":    {"/api/v1/services?watch=true", away{err: stranger}, false},
		"a request, no watch": {"/api/v1/services", away{err: refused}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				began := time.Now()
				c.server.back = began.Add(outage)
				config := AskAgain(&rest.Config{}, slog.New(slog.NewTextHandler(&said, nil)))
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://192.0.2.11"+c.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := config.WrapTransport(c.server).RoundTrip(request)
				took := time.Since(began)
				if err == nil {
					defer response.Body.Close()
				}
				if !c.waits {
					if took != 0 || c.server.err != nil && !errors.Is(err, c.server.err) || c.server.err == nil && (err != nil || response.StatusCode != c.server.status) || said.Len() > 0 {
						t.Errorf("after %v: %v, %v\n%s", took, response, err, said.String())
					}
					return
				}
				if err != nil || response.StatusCode != http.StatusOK || took < outage || took > outage+2*askAgain {
					t.Errorf("after %v: %v, %v", took, response, err)
				}
				if lines := strings.Count(said.String(), "\n"); lines != 2 {
					t.Errorf("%d lines of log for one outage:\n%s", lines, said.String())
				}
			})
		})
	}
}

// TestAWatchThatEndsDoesNotWait: what a client no longer wants is not asked for.
func TestAWatchThatEndsDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		began := time.Now()
		config := AskAgain(&rest.Config{}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://192.0.2.11/api/v1/services?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := config.WrapTransport(away{back: began.Add(time.Hour), err: refused}).RoundTrip(request)
		if err == nil {
			defer response.Body.Close()
		}
		if !utilnet.IsConnectionRefused(err) || time.Since(began) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
