package apiserver

import (
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// Aged returns a configuration by which the API server says that it is of Kubernetes 1.30, which refuses the CRDs. All else is
// as it is.
func Aged(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(to http.RoundTripper) http.RoundTripper { return aged{to} })
	return config
}

type aged struct{ http.RoundTripper }

func (a aged) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := a.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Path == "/version" {
		_ = answer.Body.Close()
		answer.Body, answer.ContentLength = io.NopCloser(strings.NewReader(`{"gitVersion": "v1.30.14"}`)), -1
	}
	return answer, err
}
