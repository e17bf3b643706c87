package apiservers

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// A watch that no server takes is asked for again after askAgain to twice that: a thousand nodes do not come at once.
const askAgain = time.Second

// AskAgain returns a copy of the config for informers, whose watches wait until a server takes them. An informer by itself waits longer
// after each failure: when an API server comes back after a minute, up to another minute passes until it hears of what changed. The answer
// of a server that is busy, or refuses a watch, goes to the informer: then to wait longer is right.
func AskAgain(config *rest.Config, log *slog.Logger) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &again{next: next, log: log} })
	return config
}

type again struct {
	next http.RoundTripper
	log  *slog.Logger
	away atomic.Bool // for one message an outage, not one a watch
}

// RoundTrip implements http.RoundTripper.
func (t *again) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "" {
		return t.next.RoundTrip(r)
	}
	for {
		response, err := t.next.RoundTrip(r)
		if err == nil && unable(response) && response.Header.Get("Retry-After") == "" {
			err = errors.New(response.Status)
			_ = response.Body.Close() // it is not read
		}
		switch {
		case err == nil:
			if t.away.CompareAndSwap(true, false) {
				t.log.Info("an API server takes watches again")
			}
			return response, nil
		case !worthwhile(err):
			return nil, err
		case r.Context().Err() == nil && t.away.CompareAndSwap(false, true):
			t.log.Warn("no API server takes a watch; what is known stays, and each watch is asked for again after a second or two", "error", err)
		}
		select {
		case <-r.Context().Done():
			return nil, err
		case <-time.After(askAgain + rand.N(askAgain)):
		}
	}
}

// worthwhile reports whether the same request may do better in a second. A server without the right certificate has to be told.
func worthwhile(err error) bool {
	_, stranger := errors.AsType[*tls.CertificateVerificationError](err)
	return !stranger
}
