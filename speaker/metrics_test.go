package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// TestSecureMetrics has a speaker whose API server is away: it says how it does to all, and its metrics to none, and those of
// pulse are behind the same door.
func TestSecureMetrics(t *testing.T) {
	node := netlab.NewHost(t, "node1")
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := apiserver.WriteKubeconfig(&rest.Config{Host: "https://127.0.0.1:1"}, config); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	program := speaker(t, log, "--forwarding-mode=none", "--proxy-health-address=", "--proxy-status-address=", "--metrics-bind-address=127.0.0.1:7474",
		"--metrics-secure", "--pulse-metrics-address=127.0.0.1:7476", "--pulse-socket="+filepath.Join(t.TempDir(), "pulse.sock"))
	program.Env = append(program.Env, "KUBECONFIG="+config)
	node.Do(func() { err = program.Start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	})
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			var dialer net.Dialer
			node.Do(func() { c, err = dialer.DialContext(ctx, network, address) })
			return c, err
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	get := func(path, token string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:7474"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		return response.StatusCode, string(text)
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		status, text := get("/healthz", "")
		if status == http.StatusOK {
			break
		}
		if time.Since(began) > time.Minute {
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("/healthz: %d %s\n%s", status, text, said)
		}
	}
	for _, path := range []string{"/metrics", "/metrics/pulse"} {
		if status, text := get(path, ""); status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %s", path, status, text)
		}
		if status, text := get(path, "x"); status != http.StatusServiceUnavailable || !strings.Contains(text, "the API server does not say who may read this") {
			t.Errorf("%s while the API server is away: %d %s", path, status, text)
		}
	}
	if status, text := get("/readyz", ""); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d %s", status, text)
	}
}
