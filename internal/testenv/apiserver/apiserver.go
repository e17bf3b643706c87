// Package apiserver runs a real Kubernetes API server, on a real etcd, for
// tests: on loopback, on free ports, with the CRDs of the checkout installed.
// There are no controllers and no nodes; what writes to it is the test.
package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// BinEnv names the directory with the binaries kube-apiserver and etcd. Without
// it they are looked for on PATH.
const BinEnv = "FAIRLEAD_TEST_BIN"

// patience is how long each step of the start may take. envtest's own limits, of five
// to twenty seconds, are too short for a machine on which many tests run.
const patience = 2 * time.Minute

// Server is a running API server.
type Server struct {
	// Config is a client with all rights (group system:masters).
	Config *rest.Config

	plane *envtest.ControlPlane
}

// Option changes how an API server is started.
type Option func(server *envtest.APIServer)

// ManyServices lets tens of thousands of Services be created in minutes. By default each
// costs what there are already: the API server counts all IPAddress objects, twice, after
// it has created one. As of 1.33, whose behaviour 1.36 is the last to emulate, it can keep
// ClusterIPs in a bitmap instead. What clients see of Services and EndpointSlices is alike.
func ManyServices(server *envtest.APIServer) {
	server.Configure().Set("emulated-version", "1.33").Set("feature-gates", "MultiCIDRServiceAllocator=false")
}

// Backups is for tests that call Backup: the server is killed, as by kubelet, instead of waiting a minute for watches to end.
func Backups(server *envtest.APIServer) { server.StopTimeout = time.Millisecond }

// Start runs an API server until the test ends. It hands out ClusterIPs of both
// families. The test is skipped, naming what is missing, where there are no
// binaries.
func Start(tb testing.TB, options ...Option) *Server {
	tb.Helper()
	s := &Server{plane: plane(tb, options)}
	if err := s.plane.Start(); err != nil {
		// envtest asks it once for its health where that question is not answered, and takes that for its state.
		tb.Logf("start the API server: %v; once more", err)
		s.plane = plane(tb, options)
		if err := s.plane.Start(); err != nil {
			tb.Fatalf("start the API server: %v", err)
		}
	}
	tb.Cleanup(func() {
		if err := s.plane.Stop(); err != nil {
			tb.Logf("the API server was killed: %v", err)
		}
	})
	admin, err := s.plane.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, &rest.Config{QPS: -1})
	if err != nil {
		tb.Fatalf("add the administrator: %v", err)
	}
	s.Config = admin.Config()
	s.awaitNamespace(tb)
	_, err = envtest.InstallCRDs(s.Config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(root(tb), "config", "crd")}, ErrorIfPathMissing: true, MaxTime: patience,
	})
	if err != nil {
		tb.Fatalf("install the CRDs: %v", err)
	}
	return s
}

// plane is an API server and its etcd, not started.
func plane(tb testing.TB, options []Option) *envtest.ControlPlane {
	tb.Helper()
	p := &envtest.ControlPlane{
		Etcd:        &envtest.Etcd{Path: find(tb, "etcd"), DataDir: tb.TempDir(), StartTimeout: patience, StopTimeout: patience},
		KubectlPath: "kubectl", // not used
	}
	configure(tb, p.GetAPIServer(), options)
	return p
}

// configure prepares an API server for tests.
func configure(tb testing.TB, server *envtest.APIServer, options []Option) {
	tb.Helper()
	server.CertDir = tb.TempDir()
	find(tb, "kube-apiserver") // which the script finds, too
	server.Path = filepath.Join(root(tb), "internal", "testenv", "apiserver", "kube-apiserver")
	server.StartTimeout, server.StopTimeout = patience, patience
	server.Configure().
		Set("advertise-address", "203.0.113.1"). // of no host, lest it look for a default route
		Set("service-cluster-ip-range", "10.96.0.0/16,fd00:10:96::/112").
		Set("service-node-port-range", "20000-60000")
	for _, option := range options {
		option(server)
	}
}

// Backup returns what brings back the state of now. For both the server ends, and comes back under its address.
func (s *Server) Backup(tb testing.TB) (restore func()) {
	tb.Helper()
	saved, data := filepath.Join(tb.TempDir(), "etcd"), s.plane.Etcd.DataDir
	s.away(tb, func() error { return os.CopyFS(saved, os.DirFS(data)) })
	return func() {
		tb.Helper()
		s.away(tb, func() error { return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(saved))) })
	}
}

// away does something while neither the server nor its etcd runs.
func (s *Server) away(tb testing.TB, do func() error) {
	tb.Helper()
	server := s.plane.GetAPIServer()
	_ = server.Stop() // it is killed, which is an error
	for _, step := range []func() error{s.plane.Etcd.Stop, do, s.plane.Etcd.Start} {
		if err := step(); err != nil {
			tb.Fatalf("start etcd anew: %v", err)
		}
	}
	if err := server.Start(); err != nil {
		tb.Logf("start the API server anew: %v; once more", err)
		_ = server.Stop()
		if err := server.Start(); err != nil {
			tb.Fatalf("start the API server anew: %v", err)
		}
	}
}

// awaitNamespace waits for the namespace default, which the API server makes after it
// has said that it is ready.
func (s *Server) awaitNamespace(tb testing.TB) {
	tb.Helper()
	api, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		tb.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_, err := api.CoreV1().Namespaces().Get(context.Background(), metav1.NamespaceDefault, metav1.GetOptions{})
		switch {
		case err == nil:
			return
		case time.Since(began) > patience:
			tb.Fatalf("the API server has no namespace default: %v", err)
		}
	}
}

// User makes a user without rights but those bound to the name.
func (s *Server) User(tb testing.TB, name string) *envtest.AuthenticatedUser {
	tb.Helper()
	user, err := s.plane.AddUser(envtest.User{Name: name}, s.Config)
	if err != nil {
		tb.Fatalf("add user %s: %v", name, err)
	}
	return user
}

// find is the path of one binary.
func find(tb testing.TB, name string) string {
	tb.Helper()
	if dir := os.Getenv(BinEnv); dir != "" {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			tb.Skipf("%s is not in the directory that %s names: %v", name, BinEnv, err)
		}
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		tb.Skipf("no %s on PATH, and %s names no directory that has it", name, BinEnv)
	}
	return path
}

// root is the directory of go.mod.
func root(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			tb.Fatal("the working directory is not within the checkout")
		}
		dir = parent
	}
}

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

// WriteKubeconfig writes a file by which programs, kubectl among them, find the API server. The error is
// that of the file.
func WriteKubeconfig(config *rest.Config, path string) error {
	const name = "test"
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, path)
}

// At has a server listen on an address of this host, for which it has a certificate, and tell the cluster that it is there.
func At(address string) Option {
	return func(server *envtest.APIServer) {
		server.Address, server.Port = address, "6443"
		server.Configure().Set("advertise-address", address).Set("bind-address", address)
	}
}

// Beside runs another API server of the same cluster, on the same etcd, with a certificate authority of its own.
func (s *Server) Beside(tb testing.TB, options ...Option) *Server {
	tb.Helper()
	other := &Server{plane: &envtest.ControlPlane{Etcd: s.plane.Etcd}}
	server := other.plane.GetAPIServer()
	configure(tb, server, options)
	server.EtcdURL, server.Authn = s.plane.Etcd.URL, s.plane.GetAPIServer().Authn
	if err := server.Start(); err != nil {
		tb.Fatalf("start another API server: %v", err)
	}
	tb.Cleanup(func() { _ = server.Stop() }) // it may have been killed
	other.Config = rest.CopyConfig(s.Config)
	other.Config.Host, other.Config.CAData = server.SecureServing.URL("https", "").String(), server.CA
	return other
}

// Signal sends a signal to the process.
func (s *Server) Signal(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	children, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		tb.Fatal(err)
	}
	for _, file := range children {
		text, _ := os.ReadFile(file) // a thread may have ended
		for id := range strings.FieldsSeq(string(text)) {
			line, _ := os.ReadFile(filepath.Join("/proc", id, "cmdline"))
			if pid, err := strconv.Atoi(id); err == nil && bytes.Contains(line, fmt.Appendf(nil, "--cert-dir=%s\x00", s.plane.GetAPIServer().CertDir)) {
				if err := syscall.Kill(pid, signal); err != nil {
					tb.Fatalf("signal the API server: %v", err)
				}
				return
			}
		}
	}
	tb.Fatal("the API server does not run")
}

// Again starts a server that was killed.
func (s *Server) Again(tb testing.TB) {
	tb.Helper()
	if err := s.plane.GetAPIServer().Start(); err != nil {
		tb.Fatalf("start the API server again: %v", err)
	}
}
