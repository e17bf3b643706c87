package apiserver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

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
