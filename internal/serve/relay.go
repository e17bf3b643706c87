package serve

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// Relay serves the metrics that another program on this machine serves at an address. That program learns nothing of
// the client, and least of all its token: another one may have the port while it is away.
func Relay(address string) http.Handler {
	return &httputil.ReverseProxy{
		Transport: &http.Transport{ResponseHeaderTimeout: requestWithin, MaxConnsPerHost: scrapes},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = &url.URL{Scheme: "http", Host: address, Path: "/metrics"}
			r.Out.Header = http.Header{"Accept": r.In.Header["Accept"], "Accept-Encoding": r.In.Header["Accept-Encoding"]}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("no metrics at %s: %v", address, err), http.StatusBadGateway)
		},
	}
}
