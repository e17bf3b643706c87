package apiservers

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestServersAreRead: hosts with ports, of both families.
func TestServersAreRead(t *testing.T) {
	if got, err := Parse(" 192.0.2.5:6443,[2001:db8::5]:6443, cp.example.com:443,"); err != nil || !slices.Equal(got, []string{"192.0.2.5:6443", "[2001:db8::5]:6443", "cp.example.com:443"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"192.0.2.5", "2001:db8::5:x", ":6443", "a:", "https://a:1:2"} {
		if got, err := Parse(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q is read as %v, %v", bad, got, err)
		}
	}
}

// spread counts which servers nodes ask. A request of each goes to the first that is not gone.
func spread(t *testing.T, nodes []*Servers, gone string) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, s := range nodes {
		client := &transport{servers: s, next: answers(func(r *http.Request) error {
			if r.URL.Host == gone {
				return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			}
			count[r.URL.Host]++
			return nil
		})}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.given[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := client.RoundTrip(request); err != nil {
			t.Error(err)
		} else if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	return count
}

// answers is a RoundTripper that answers each request that does not fail.
type answers func(*http.Request) error

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, a(r)
}

// TestNoServerHasAllNodes: nodes begin with different servers, those of one that ends go to all others, whether these were given or learned,
// and they come back, not all at once, when it answers again.
func TestNoServerHasAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		given := []string{"192.0.2.5:6443", "192.0.2.6:6443", "192.0.2.7:6443"}
		var nodes []*Servers
		for i := range 300 {
			s := New(fmt.Sprint("node", i), given, slog.New(slog.DiscardHandler))
			s.Learn([]netip.AddrPort{netip.MustParseAddrPort(given[0]), netip.MustParseAddrPort("192.0.2.8:6443")})
			nodes = append(nodes, s)
		}
		even := func(when string, count map[string]int, least, most int, servers ...string) {
			t.Helper()
			t.Logf("%s: %v", when, count)
			for _, server := range servers {
				if n := count[server]; n < least || n > most || len(count) != len(servers) {
					t.Errorf("%s, %d of %d nodes ask %s: %v", when, n, len(nodes), server, count)
				}
			}
		}
		even("at first", spread(t, nodes, ""), 75, 125, given...)
		even("when one has ended", spread(t, nodes, given[0]), 120, 180, given[1:]...)
		even("when it is back", spread(t, nodes, ""), 120, 180, given[1:]...)
		time.Sleep(returnAfter - time.Second)
		even("before they may return", spread(t, nodes, ""), 120, 180, given[1:]...)
		time.Sleep(returnAfter / 2)
		if n := spread(t, nodes, "")[given[0]]; n < 25 || n > 75 {
			t.Errorf("half of the time later %d nodes are back", n)
		}
		time.Sleep(returnAfter)
		even("at last", spread(t, nodes, ""), 75, 125, given...)
		if n := testutil.CollectAndCount(nodes[0]); n != 2 {
			t.Errorf("%d metrics, want the server in use and the count of changes", n)
		}
	})
}

// TestALearnedServerGoes: what was asked and is no more has no part in what is asked.
func TestALearnedServerGoes(t *testing.T) {
	s := New("node", []string{"192.0.2.5:6443", "192.0.2.6:6443"}, slog.New(slog.DiscardHandler))
	s.Learn([]netip.AddrPort{netip.MustParseAddrPort("192.0.2.8:6443")})
	_, asked := s.inTurn(false)
	s.moveOn(asked, "192.0.2.8:6443", errNoConnection)
	s.Learn(nil)
	_, first := s.inTurn(false)
	s.moveOn(first, "", errNoConnection)
	if _, second := s.inTurn(false); second == first || second == "192.0.2.8:6443" {
		t.Errorf("%s does not answer, and %s is asked", first, second)
	}
}

// TestAServerThatCannotServeIsLeft: one that has lost its etcd, or a proxy without a server behind it, says so.
func TestAServerThatCannotServeIsLeft(t *testing.T) {
	serve := func(status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	unable, able := serve(http.StatusServiceUnavailable), serve(http.StatusOK)
	for _, given := range [][]string{{unable, able}, {able, unable}, {unable, unable}} {
		servers := New("", given, slog.New(slog.DiscardHandler))
		servers.given, servers.asked = given, given[0]
		client := http.Client{Transport: &transport{servers: servers, next: http.DefaultTransport}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+given[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if want := map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[slices.Contains(given, able)]; response.StatusCode != want {
			t.Errorf("%v answers %d, want %d", given, response.StatusCode, want)
		}
		if _, asked := servers.inTurn(true); slices.Contains(given, able) && asked != able {
			t.Errorf("%s is asked from now on", asked)
		}
	}
}
