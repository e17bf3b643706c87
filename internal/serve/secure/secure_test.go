package secure_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/internal/serve"
	"fairlead.dev/fairlead/internal/serve/secure"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/testenv/testlog"
)

func TestMain(m *testing.M) { netlab.Isolated(m.Run) }

// wire is how the API server is reached, until it is cut.
type wire struct {
	mu    sync.Mutex
	isCut bool
	open  []net.Conn
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		return nil, net.ErrClosed
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, network, address)
	if err == nil {
		w.open = append(w.open, c)
	}
	return c, err
}

func (w *wire) cut(is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		_ = c.Close()
	}
	w.isCut, w.open = is, nil
}

// authority is an API server with a ServiceAccount that may read metrics, one that may not, and one of the program, which
// may have both reviewed.
type authority struct {
	t       *testing.T
	kube    kubernetes.Interface
	program *rest.Config
	wire    wire
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	server := apiserver.Start(t)
	a := &authority{t: t}
	var err error
	if a.kube, err = kubernetes.NewForConfig(server.Config); err != nil {
		t.Fatal(err)
	}
	for _, account := range []string{"program", "prometheus", "stranger"} {
		if _, err := a.kube.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.kube.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.bind("system:auth-delegator", "program")
	a.bind("reader", "prometheus")
	a.program = rest.AnonymousClientConfig(server.Config)
	a.program.BearerToken, a.program.Dial = a.token("program"), a.wire.dial
	return a
}

func (a *authority) bind(role, account string) {
	a.t.Helper()
	if _, err := a.kube.RbacV1().ClusterRoleBindings().Create(a.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: account}},
	}, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) token(account string) string {
	a.t.Helper()
	made, err := a.kube.CoreV1().ServiceAccounts("default").CreateToken(a.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return made.Status.Token
}

// asked is what a client with an Authorization gets.
func asked(t *testing.T, handler http.Handler, path, authorization string) (status int, text string) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	return answer.Code, strings.TrimSpace(answer.Body.String())
}

// The API server decides which clients read metrics. While it is away, those of the last hour do.
func TestReviews(t *testing.T) {
	a := newAuthority(t)
	now := time.Now()
	handler, err := secure.ReviewedAt(func() time.Time { return now }, a.program, testlog.New(t), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "numbers")
	}))
	if err != nil {
		t.Fatal(err)
	}
	reader, stranger := "Bearer "+a.token("prometheus"), "bearer "+a.token("stranger")
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) { // the API server learns of roles after a moment
		if status, text := asked(t, handler, "/metrics", reader); status == http.StatusOK && text == "numbers" {
			break
		} else if time.Since(began) > time.Minute {
			t.Fatalf("with rights: %d %s", status, text)
		}
	}
	holds := func(when string, want int, path, authorization, says string) {
		t.Helper()
		if status, text := asked(t, handler, path, authorization); status != want || !strings.Contains(text, says) {
			t.Errorf("%s: %d %q, want %d and %q", when, status, text, want, says)
		}
	}
	holds("without a token", http.StatusUnauthorized, "/metrics", "", "Authorization: Bearer TOKEN")
	holds("by a password", http.StatusUnauthorized, "/metrics", "Basic Zm9vOmJhcg==", "Authorization: Bearer TOKEN")
	holds("with an empty token", http.StatusUnauthorized, "/metrics", "Bearer ", "Authorization: Bearer TOKEN")
	holds("with a made-up token", http.StatusUnauthorized, "/metrics", "Bearer x", "does not know this token")
	holds("without rights", http.StatusForbidden, "/metrics", stranger, "system:serviceaccount:default:stranger may not get /metrics: bind")
	holds("with rights for another path", http.StatusForbidden, "/metrics/pulse", reader, "may not get /metrics/pulse")

	a.wire.cut(true)
	now = now.Add(30 * time.Minute)
	holds("let in before, and the API server is away", http.StatusOK, "/metrics", reader, "numbers")
	holds("never let in, and the API server is away", http.StatusServiceUnavailable, "/metrics", stranger, "the API server does not say who may read this")
	now = now.Add(31 * time.Minute)
	holds("let in too long before", http.StatusServiceUnavailable, "/metrics", reader, "the API server does not say who may read this")

	a.wire.cut(false)
	holds("the API server is back", http.StatusOK, "/metrics", reader, "numbers")
	if err := a.kube.RbacV1().ClusterRoleBindings().Delete(t.Context(), "prometheus", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		now = now.Add(2 * time.Minute)
		if status, _ := asked(t, handler, "/metrics", reader); status == http.StatusForbidden {
			return
		} else if time.Since(began) > time.Minute {
			t.Fatalf("after the rights are gone: %d", status)
		}
	}
}

// pair writes a certificate and its key, and returns the certificate.
func pair(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "tls.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The certificate of a Secret is shown from the moment that it is there, the renewed one after it, and a broken one never.
func TestNoMetricsAreServed(t *testing.T) {
	o := secure.Options{Address: "127.0.0.1:7474", Pulse: "127.0.0.1:1", Off: true}
	if how := o.ForManager(nil, testlog.New(t)); how.BindAddress != "0" {
		t.Errorf("a manager serves at %s", how.BindAddress)
	}
	ctx, end := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := o.Serve(ctx, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func() error { return nil }, nil, testlog.New(t)); err != nil {
			t.Error(err)
		}
	})
	status := func(path string) int {
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			response, err := http.Get("http://" + o.Address + path)
			if err == nil {
				_ = response.Body.Close()
				return response.StatusCode
			}
			if time.Since(began) > time.Minute {
				t.Fatal(err)
			}
		}
	}
	for path, want := range map[string]int{"/metrics": 404, "/metrics/pulse": 404, "/healthz": 200, "/readyz": 200} {
		if got := status(path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	end()
	serving.Wait()
}

func TestCertificates(t *testing.T) {
	dir, address := t.TempDir(), "127.0.0.1:17474"
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	defer func() { cancel(); <-ended }()
	go func() {
		defer close(ended)
		serve.HTTPS(ctx, address, secure.TLS(dir, testlog.New(t)), http.NotFoundHandler(), testlog.New(t))
	}()
	shown := func() *x509.Certificate {
		t.Helper()
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			c, err := dialer.DialContext(t.Context(), "tcp", address)
			if err == nil {
				defer c.Close()
				return c.(*tls.Conn).ConnectionState().PeerCertificates[0]
			}
			if time.Since(began) > time.Minute {
				t.Fatal(err)
			}
		}
	}
	own := shown()
	if own.Subject.CommonName != "fairlead-metrics" || time.Until(own.NotAfter) < 365*24*time.Hour {
		t.Errorf("without a Secret: %v until %v", own.Subject, own.NotAfter)
	}
	if !own.Equal(shown()) {
		t.Error("each client sees another certificate")
	}
	for _, name := range []string{"first", "renewed"} {
		if made := pair(t, dir, name); !made.Equal(shown()) {
			t.Errorf("the %s certificate is not shown: %v", name, shown().DNSNames)
		}
	}
	write(t, filepath.Join(dir, "tls.key"), []byte("broken"))
	if got := shown(); got.DNSNames[0] != "renewed" {
		t.Errorf("with a broken key: %v", got.DNSNames)
	}
}
