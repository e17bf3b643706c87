// Package apiserver runs a real Kubernetes API server, on a real etcd, for
// tests: on loopback, on free ports, with the CRDs of the checkout installed.
// There are no controllers and no nodes; what writes to it is the test.
package apiserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// BinEnv names the directory with the binaries kube-apiserver and etcd. Without
// it they are looked for on PATH.
const BinEnv = "FAIRLEAD_TEST_BIN"

// Server is a running API server.
type Server struct {
	// Config is a client with all rights (group system:masters).
	Config *rest.Config

	environment *envtest.Environment
}

// Start runs an API server until the test ends. It hands out ClusterIPs of both
// families. The test is skipped, naming what is missing, where there are no
// binaries.
func Start(tb testing.TB) *Server {
	tb.Helper()
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join(root(tb), "config", "crd")},
		ErrorIfCRDPathMissing: true,
	}
	server := environment.ControlPlane.GetAPIServer()
	server.Path = find(tb, "kube-apiserver")
	environment.ControlPlane.Etcd = &envtest.Etcd{Path: find(tb, "etcd")}
	environment.ControlPlane.KubectlPath = "kubectl" // not used
	server.Configure().
		Set("service-cluster-ip-range", "10.96.0.0/16,fd00:10:96::/112").
		Set("service-node-port-range", "20000-60000")

	config, err := environment.Start()
	if err != nil {
		tb.Fatalf("start the API server: %v", err)
	}
	tb.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			tb.Errorf("stop the API server: %v", err)
		}
	})
	return &Server{Config: config, environment: environment}
}

// User makes a user who has no rights but those bound to the name.
func (s *Server) User(tb testing.TB, name string) *envtest.AuthenticatedUser {
	tb.Helper()
	user, err := s.environment.AddUser(envtest.User{Name: name}, s.Config)
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
