package lab

import (
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/fairlead/internal/addr"
)

func TestAddressPlanHasNoOverlaps(t *testing.T) {
	machines := map[string]addresses{
		"gateway": gatewayAddresses(), controlPlaneName: onLAN(10),
		routerName: routerAddresses(), clientName: clientAddresses(),
	}
	ranges := []netip.Prefix{
		lanRange4(), lanRange6(), clientRange4(), clientRange6(), RoutedRange4(), RoutedRange6(),
		netip.MustParsePrefix(podRange4), netip.MustParsePrefix(podRange6),
		netip.MustParsePrefix(serviceRange4), netip.MustParsePrefix(serviceRange6),
	}
	for n := range maxNodes {
		machines[nodeName(n+1)] = nodeAddresses(n + 1)
		pods := podRanges(n + 1)
		if !ranges[6].Overlaps(pods.v4) || !ranges[7].Overlaps(pods.v6) {
			t.Errorf("pods of node %d have %v, outside the pod ranges", n+1, pods)
		}
	}
	owner := make(map[netip.Addr]string)
	for name, addrs := range machines {
		for _, p := range addrs.in(addr.Families()) {
			if other, taken := owner[p.Addr()]; taken {
				t.Errorf("%s and %s both have %s", name, other, p.Addr())
			}
			owner[p.Addr()] = name
		}
		if got := len(addrs.mac()); got != 6 {
			t.Errorf("%s has a hardware address of %d bytes", name, got)
		}
	}
	for i, a := range ranges {
		for _, b := range ranges[:i] {
			if a.Overlaps(b) {
				t.Errorf("%s and %s overlap", a, b)
			}
		}
	}
}

func TestOpenCacheTakesAbsolutePathsOnly(t *testing.T) {
	t.Setenv("FAIRLEAD_CACHE", "some/where")
	if _, err := openCache(); err == nil || !strings.Contains(err.Error(), "some/where") {
		t.Errorf("openCache = %v", err)
	}
	t.Setenv("FAIRLEAD_CACHE", "/some/where")
	if c, err := openCache(); err != nil || c.bin("kubectl") != "/some/where/bin/kubectl" {
		t.Errorf("openCache = %q, %v", c, err)
	}
}

// Both families of a node's addresses, its name and its group must be what the
// API server and the Node authorizer check.
func TestPKI(t *testing.T) {
	dir := t.TempDir()
	now, url := time.Now(), Options{}.apiServerURL()
	if err := createPKI(dir, now, 2, url); err != nil {
		t.Fatal(err)
	}
	ca := x509.NewCertPool()
	ca.AddCert(certificate(t, dir, "ca"))
	node := certificate(t, dir, "node2")
	for _, name := range []string{"node2", "172.30.0.12", "fd00:30::12"} {
		if _, err := node.Verify(x509.VerifyOptions{Roots: ca, DNSName: name, CurrentTime: now}); err != nil {
			t.Errorf("node2 as %s: %v", name, err)
		}
	}
	if node.Subject.CommonName != "system:node:node2" || node.Subject.Organization[0] != "system:nodes" {
		t.Errorf("node2 is %s", node.Subject)
	}
	server := certificate(t, dir, "apiserver")
	for _, name := range []string{"kubernetes.default.svc", apiService4, apiService6, "172.30.0.10", "172.30.0.11"} {
		if _, err := server.Verify(x509.VerifyOptions{Roots: ca, DNSName: name, CurrentTime: now}); err != nil {
			t.Errorf("API server as %s: %v", name, err)
		}
	}
	client := certificate(t, dir, "front-proxy-client")
	if _, err := client.Verify(x509.VerifyOptions{Roots: ca, CurrentTime: now}); err == nil {
		t.Error("the cluster's authority vouches for the front proxy")
	}

	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rest.TLSConfigFor(config); err != nil || config.Host != url {
		t.Errorf("administrator's configuration: host %s, %v", config.Host, err)
	}
}

func certificate(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name+".crt"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("%s.crt is not PEM", name)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestJoiningCgroups(t *testing.T) {
	v1 := cgroups{mounts: []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/pids"}}
	v2 := cgroups{mounts: []string{cgroupRoot}, v2: true}
	for _, c := range []struct {
		name string
		got  []string
		want string
	}{
		{"version 1", v1.joining("node1", false, "true"), "echo 0 >/sys/fs/cgroup/cpu/fairlead-lab/node1/cgroup.procs && " +
			"echo 0 >/sys/fs/cgroup/pids/fairlead-lab/node1/cgroup.procs && "},
		{"version 2, first", v2.joining("node1", true, "true"), "echo 0 >/sys/fs/cgroup/fairlead-lab/node1/cgroup.procs && "},
		{"version 2, later", v2.joining("node1", false, "true"), "echo 0 >/sys/fs/cgroup/fairlead-lab/node1/init/cgroup.procs && "},
	} {
		want := "sh -c " + c.want + `exec "$@" sh true`
		if got := strings.Join(c.got, " "); got != want {
			t.Errorf("%s: %s\nwant %s", c.name, got, want)
		}
	}
}
