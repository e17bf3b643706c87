// Package released tries what is released as strangers do: make release and make publish into a real registry, the
// commands of the quick start, and upgrades from one release to the next and back under load. The nodes of its lab
// pull the image from that registry.
package released

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// theirs is the registry of the quick start, ours the one on the control plane of the lab.
const (
	theirs = "registry.example.com/team"
	ours   = "172.30.0.10:5000"
)

// architecture has a release be for this machine alone, which is half the work.
const architecture = "ARCHITECTURES=" + runtime.GOARCH

const (
	soon     = 30 * time.Second
	patience = 5 * time.Minute
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, fmt.Errorf("not within %v", d))
	t.Cleanup(cancel)
	return ctx
}

// checkout clones the last commit, as one that is to be released as that version. Where a machine cannot have a lab
// the test is skipped, naming what is missing.
func checkout(t *testing.T, version string) (dir string) {
	t.Helper()
	if missing := append(lab.Missing(), lab.Built(lab.Proxy)); errors.Join(missing...) != nil {
		t.Skip(errors.Join(missing...))
	}
	root, err := lab.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	run(t, root, "git", "clone", "--quiet", "--shared", root, dir)
	helm := filepath.Join(dir, "bin", "helm")
	if err := os.Mkdir(filepath.Dir(helm), 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "cp", filepath.Join(lab.Programs(), "helm4"), helm)
	if err := os.WriteFile(filepath.Join(dir, "VERSION"), []byte(version+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs a command of this machine, which must not fail. The first release compiles all there is.
func run(t *testing.T, dir string, command ...string) {
	t.Helper()
	began := time.Now()
	cmd := exec.CommandContext(within(t, time.Hour), command[0], command[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	t.Logf("%s: %v", strings.Join(command, " "), time.Since(began).Round(time.Second))
}

// site is the lab with a registry, and the directory of a release from which commands are run.
type site struct {
	*product.Cluster
	authority string // of certificates: a file
	dir       string
}

// newSite starts a lab with kube-proxy and serves a registry on its control plane by TLS, with a certificate of the
// lab's authority, which the nodes trust as those of a company trust the company's.
func newSite(t *testing.T) site {
	t.Helper()
	ctx := within(t, 2*patience)
	c, err := product.Up(ctx, lab.Options{Proxy: "iptables", Progress: os.Stderr}, lab.Proxy)
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Error("the lab did not go down: ", err)
		}
	})
	lab.Keep(t)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := c.ServerCertificate()
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	s := site{Cluster: c, authority: filepath.Join(filepath.Dir(certificate), "ca.crt")}
	var listener net.Listener
	err = c.ControlPlane.Inside(func() (err error) {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", ours)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: time.Minute}
	go func() {
		_ = server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}))
	}()
	t.Cleanup(func() { _ = server.Close() })
	for _, n := range c.Nodes() {
		if _, err := n.Exec(ctx, "sh", "-c", "cat /etc/kubernetes/ca.crt >>/etc/ssl/certs/ca-certificates.crt"); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// try runs a script of the quick start as the administrator, in the directory of the release. It stops at the first
// command that fails.
func (s site) try(ctx context.Context, script string) (string, error) {
	script = strings.NewReplacer(
		theirs, ours+"/team",
		"192.0.2.5", s.ControlPlane.IPv4.String(),
		// The size of the connection table is the whole machine's: leave it.
		"--set apiServer.port=6443", "--set apiServer.port=6443 --set forwarding.conntrack.maxPerCore=0",
	).Replace(script)
	script = regexp.MustCompile(`registry\.k8s\.io/e2e-test-images/agnhost:\S+`).ReplaceAllString(script, lab.AgnhostImage)
	path := filepath.Join(s.dir, "bin") + ":" + lab.Programs() + ":" + os.Getenv("PATH")
	return s.ControlPlane.Exec(ctx, "env", "--chdir="+s.dir, "KUBECONFIG="+s.Kubeconfig(), "SSL_CERT_FILE="+s.authority, architecture,
		"HELM_CACHE_HOME="+s.dir, "HELM_CONFIG_HOME="+s.dir, "HELM_DATA_HOME="+s.dir, "PATH="+path, "sh", "-euc", script)
}

// must runs a script that must not fail.
func (s site) must(t *testing.T, script string) {
	t.Helper()
	began := time.Now()
	if out, err := s.try(within(t, patience), script); err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	t.Logf("%v for\n%s", time.Since(began).Round(time.Millisecond), strings.TrimSpace(script))
}

// TestTwoReleasesAreTheSame makes a release of one commit in two places, signed by one key: the second one, which has the caches
// of the first, without a network.
func TestTwoReleasesAreTheSame(t *testing.T) {
	var sums [2][]byte
	key := filepath.Join(t.TempDir(), "release.key")
	for i := range sums {
		dir := checkout(t, "0.9.9")
		if i == 0 {
			out, err := exec.CommandContext(within(t, patience), "make", "--directory", dir, "release", "KEY="+key).CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte(key+": no such file or directory")) {
				t.Errorf("without its key a release ends with %v and\n%s", err, out)
			}
			run(t, dir, "openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", key)
		}
		release := []string{"make", "release", "KEY=" + key}
		if i == 1 {
			release = slices.Concat([]string{"unshare", "--net"}, release)
		}
		run(t, dir, release...)
		for _, name := range []string{"dist/SHA256SUMS", "dist/oci/index.json"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			sums[i] = append(sums[i], text...)
		}
		vex, err := os.ReadFile(filepath.Join(dir, "dist/vex-0.9.9.json"))
		if err != nil || bytes.Contains(vex, []byte(`"affected"`)) || !bytes.Contains(vex, []byte("a KEEPALIVE in its place")) {
			t.Errorf("what is known against it affects it, or why it does not is not stated (%v):\n%s", err, vex)
		}
		licences, err := os.ReadFile(filepath.Join(dir, "dist/licences-0.9.9.txt"))
		if err != nil || !bytes.Contains(licences, []byte("\ngithub.com/osrg/gobgp/v3@")) {
			t.Errorf("the licences lack that of GoBGP (%v)", err)
		}
		checkSBOMs(t, filepath.Join(dir, "dist"), "0.9.9")
	}
	if n := bytes.Count(sums[0], []byte(`.sig"}`)); n != 5 { // the image, three charts and the files
		t.Errorf("the layout has %d signatures:\n%s", n, sums[0])
	}
	if !bytes.Equal(sums[0], sums[1]) {
		t.Errorf("two releases of one commit differ:\n%s\n%s", sums[0], sums[1])
	}
}
