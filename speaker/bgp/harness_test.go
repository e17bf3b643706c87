package bgp

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// live counts the speakers of a test that are not closed yet.
var live atomic.Int32

// checkLeaks fails the test if goroutines of GoBGP or of this package are left
// when everything that was started is closed.
func checkLeaks(t testing.TB) {
	var left []string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left = slices.DeleteFunc(strings.Split(string(stacks), "\n\n"), func(stack string) bool {
			return strings.Contains(stack, "testing.") || !slices.ContainsFunc(
				[]string{"osrg/gobgp", "eapache/channels", "fairlead/speaker/bgp.(*session)", "fairlead/speaker/bgp.(*daemon)", "fairlead/speaker/bgp.(*Speaker)"},
				func(ours string) bool { return strings.Contains(stack, ours) })
		})
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("%d goroutines left:\n%s", len(left), strings.Join(left, "\n\n"))
}

// prefixes parses prefixes into routes without attributes.
func prefixes(list ...string) map[netip.Prefix]desired.RouteAttrs {
	routes := map[netip.Prefix]desired.RouteAttrs{}
	for _, p := range list {
		routes[netip.MustParsePrefix(p)] = desired.RouteAttrs{}
	}
	return routes
}

// newSpeaker makes a Speaker that is closed with the test.
func newSpeaker(t testing.TB, options ...slog.Handler) *Speaker {
	log := quiet(t)
	for _, handler := range options {
		log = slog.New(handler)
	}
	s := New(log)
	live.Add(1)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx, true); err != nil {
			t.Error(err)
		}
		if live.Add(-1) == 0 {
			checkLeaks(t)
		}
	})
	return s
}

func mustApply(t testing.TB, s *Speaker, want map[string]desired.Session) {
	t.Helper()
	if err := s.Apply(t.Context(), want); err != nil {
		t.Fatal(err)
	}
}

// inPlace are the routes that a peer has been told of on a session that is up.
type inPlace struct {
	Established bool
	Announced   map[netip.Prefix]desired.RouteAttrs
}

func (s *Speaker) inPlace() map[string]inPlace {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]inPlace{}
	for name, session := range s.sessions {
		all[name] = session.inPlace()
	}
	return all
}

func (s *session) inPlace() inPlace {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Phase != Established {
		return inPlace{}
	}
	announced := map[netip.Prefix]desired.RouteAttrs{}
	for prefix, r := range s.routes {
		if s.status.carries(addr.FamilyOf(prefix.Addr())) {
			announced[prefix] = r.attrs
		}
	}
	return inPlace{true, announced}
}
