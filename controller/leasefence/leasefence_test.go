package leasefence

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// answering counts the requests that reach the API server, which answers them so.
type answering struct {
	code  int
	takes time.Duration
	seen  int
}

func (a *answering) RoundTrip(*http.Request) (*http.Response, error) {
	a.seen++
	time.Sleep(a.takes)
	return &http.Response{StatusCode: a.code, Body: http.NoBody}, nil
}

// TestFence: a process writes while its lease is fresh, counted from when the request
// began that renewed it, and never again once it was not.
func TestFence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &answering{code: http.StatusOK}
		fence := New(Standard())
		client := transport{fence, server}
		send := func(method, path string) error {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://server"+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.RoundTrip(r)
			if err == nil {
				err = response.Body.Close()
			}
			return err
		}
		const status, lease = "/api/v1/namespaces/shop/services/web/status", "/apis/coordination.k8s.io/v1/namespaces/fairlead-system/leases/fairlead-controller"
		writes := func(when string, want bool) {
			t.Helper()
			before := server.seen
			err := send(http.MethodPatch, status)
			if wrote := server.seen > before; wrote != want || (err == nil) != want || err != nil && !errors.Is(err, ErrLapsed) {
				t.Errorf("%s: wrote %t (%v), want %t", when, wrote, err, want)
			}
		}
		renew := func(code int, takes time.Duration) {
			server.code, server.takes = code, takes
			_ = send(http.MethodPut, lease)
			server.code, server.takes = http.StatusOK, 0
		}

		renew(http.StatusOK, time.Second)
		writes("with a fresh lease", true)
		time.Sleep(8 * time.Second)
		writes("before the deadline", true)
		renew(http.StatusOK, 0)
		time.Sleep(9 * time.Second)
		renew(http.StatusConflict, 0)
		writes("while it cannot renew", true)
		time.Sleep(time.Second)
		writes("after the deadline", false)
		if err := send(http.MethodGet, status); err != nil {
			t.Errorf("it may not even read: %v", err)
		}
		if err := fence.Run(t.Context()); !errors.Is(err, ErrLapsed) {
			t.Errorf("the process goes on with %v", err)
		}
		before := server.seen
		renew(http.StatusOK, 0)
		if server.seen > before {
			t.Error("it writes the lease, which another one may hold")
		}
		writes("after all that", false)
	})
}

// TestOnlyLeasesRenew: the lease is renewed by nothing that is only called so, also where the
// API server is behind a proxy, and such writes are kept back like any other.
func TestOnlyLeasesRenew(t *testing.T) {
	t.Parallel()
	for path, renews := range map[string]bool{
		"/apis/coordination.k8s.io/v1/namespaces/fairlead-system/leases":                                      true,
		"/apis/coordination.k8s.io/v1/namespaces/fairlead-system/leases/fairlead-controller":                  true,
		"/k8s/clusters/c-1/apis/coordination.k8s.io/v1/namespaces/fairlead-system/leases/fairlead-controller": true,
		"/api/v1/namespaces/shop/services/leases-web/status":                                                  false,
		"/api/v1/namespaces/leases/services/web/status":                                                       false,
		"/api/v1/namespaces/shop/services/coordination.k8s.io/status":                                         false,
	} {
		server := &answering{code: http.StatusOK}
		fence := New(Standard())
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://server"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport{fence, server}.RoundTrip(r)
		if (err == nil) != renews || server.seen > 0 != renews {
			t.Errorf("%s: sent %d times (%v), want %t", path, server.seen, err, renews)
		}
		if err == nil {
			err = response.Body.Close()
		}
		if leads, _ := fence.state(time.Now()); leads != renews {
			t.Errorf("%s: leads %t (%v), want %t", path, leads, err, renews)
		}
	}
}

// TestClosedBeforeTheLease: a stand-by writes nothing, and does not end for trying.
func TestClosedBeforeTheLease(t *testing.T) {
	t.Parallel()
	fence := New(Standard())
	if leads, lost := fence.state(time.Now()); leads || lost {
		t.Errorf("leads %t, has lost the lease %t, want neither", leads, lost)
	}
	select {
	case <-fence.lapsed:
		t.Error("it lost what it never had")
	default:
	}
}

// TestNothingIsSentOnceTheLeaseIsLost: what a process began while it led, and was held up in,
// does not reach the wire once the lease is lost.
func TestNothingIsSentOnceTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, server := net.Pipe()
		arrived := make(chan string)
		go func() {
			defer close(arrived)
			for b := make([]byte, 16); ; {
				n, err := server.Read(b)
				if err != nil {
					return
				}
				arrived <- string(b[:n])
			}
		}()
		fence := New(Standard())
		wire := conn{ours, fence}
		send := func(text string) error {
			_, err := wire.Write([]byte(text))
			return err
		}
		for _, when := range []string{"stand-by", "leader"} {
			if err := send(when); err != nil || <-arrived != when {
				t.Errorf("%s: %v", when, err)
			}
			fence.renew(time.Now())
		}
		time.Sleep(Standard().Renew)
		if err := send("late"); !errors.Is(err, ErrLapsed) {
			t.Errorf("after the lease: %v, want %v", err, ErrLapsed)
		}
		if err := wire.Close(); err != nil {
			t.Error(err)
		}
		if text, open := <-arrived; open {
			t.Errorf("%q was sent after the lease", text)
		}
	})
}
