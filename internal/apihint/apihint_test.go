package apihint_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/internal/apihint"
)

// What answers, or does not, where a program looks for the API server: each fault has a sentence of its own, which ends with what to set.
func TestWhyNamesTheValueAndTheFix(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.StartTLS()
	t.Cleanup(server.Close)
	known := x509.NewCertPool()
	known.AddCert(server.Certificate())
	elsewhere := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	for name, test := range map[string]struct {
		at    string
		trust *tls.Config
		want  []string
	}{
		"nothing listens":                   {"https://127.0.0.1:1", nil, []string{"connection refused"}},
		"a placeholder that was left":       {"https://API-SERVER:6443", nil, []string{"API-SERVER is no name that resolves here", "KUBERNETES_SERVICE_HOST"}},
		"another cluster's certificate":     {server.URL, &tls.Config{}, []string{"unknown authority", "of another cluster", "a proxy"}},
		"a certificate for other addresses": {elsewhere, &tls.Config{RootCAs: known}, []string{"not for localhost", "certSANs"}},
		"a certificate that has expired": {
			server.URL, &tls.Config{RootCAs: known, Time: func() time.Time { return time.Now().AddDate(100, 0, 0) }},
			[]string{"expired", "renew it", "clock"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transport := &http.Transport{TLSClientConfig: test.trust}
			defer transport.CloseIdleConnections()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, test.at, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := (&http.Client{Transport: transport}).Do(request)
			if err == nil {
				_ = answer.Body.Close()
				t.Fatal("it is answered")
			}
			why, hint := apihint.Why(err, apihint.OfSpeakers)
			for _, text := range append(test.want, "apiServer.host") {
				if !strings.Contains(why+"; "+hint, text) {
					t.Errorf("%q is not in %q; %q", text, why, hint)
				}
			}
		})
	}
}

func TestOutdatedNamesTheVersionToUpgradeTo(t *testing.T) {
	t.Parallel()
	for version, old := range map[string]bool{
		"v1.30.14": true, "v1.30.5-gke.100": true, "v1.9.0": true,
		"v1.31.0": false, "v1.31.0-rc.1": false, "v1.37.2+k3s1": false, "none": false, "": false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if version == "" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			_, _ = fmt.Fprintf(w, `{"gitVersion": %q}`, version)
		}))
		told := apihint.Outdated(discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: server.URL}))
		server.Close()
		if (told != "") != old || old && (!strings.Contains(told, version) || !strings.Contains(told, "1.31 or newer")) {
			t.Errorf("of %q is told %q", version, told)
		}
	}
}
