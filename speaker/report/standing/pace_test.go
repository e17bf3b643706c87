package standing

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/report"
)

// server stores the objects and counts what it is asked. The behaviour of a real one is
// tested beside.
type server struct {
	mu      sync.Mutex
	away    bool
	stored  map[string]client.Object
	asked   int // of any kind
	written int
}

var errAway = errors.New("connection refused")

func (s *server) ask() error {
	s.asked++
	if s.away {
		return errAway
	}
	return nil
}

func (s *server) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, object := range s.stored {
		switch into := list.(type) {
		case *v1beta1.BGPSessionList:
			into.Items = append(into.Items, *object.(*v1beta1.BGPSession))
		case *v1beta1.NodeForwardingList:
			into.Items = append(into.Items, *object.(*v1beta1.NodeForwarding))
		}
	}
	return s.ask()
}

func (s *server) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return s.store(o)
}

func (s *server) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stored, o.GetName())
	return s.ask()
}

func (s *server) Status() client.SubResourceWriter { return statuses{server: s} }

// statuses are the subresource of the objects.
type statuses struct {
	client.SubResourceWriter
	server *server
}

func (s statuses) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.server.store(o)
}

func (s *server) store(o client.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ask(); err != nil {
		return err
	}
	s.written++
	s.stored[o.GetName()] = o.DeepCopyObject().(client.Object)
	return nil
}

// counted is what was asked and written since the last call.
func (s *server) counted() (asked, written int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, written = s.asked, s.written
	s.asked, s.written = 0, 0
	return asked, written
}

func (s *server) status() v1beta1.BGPSessionStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored["tor.node1"].(*v1beta1.BGPSession).Status
}

// keeping runs a Keeper in a bubble of synctest.
func keeping(t *testing.T, test func(*server, func(report.Session))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{stored: map[string]client.Object{}}
		k := NewSessions("node1", s, slog.New(slog.DiscardHandler))
		stop := running(t, k.Run)
		test(s, func(session report.Session) {
			k.Tell(types.UID("uid"), map[string]report.Session{"tor": session}, nil)
		})
		stop()
	})
}

// running runs a Keeper until stop.
func running(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

var (
	up       = report.Session{Up: true, State: "Established"}
	down     = report.Session{State: "Active", LastError: "no answer"}
	refusing = report.Session{State: "Idle", LastError: "no answer"}
)

// TestAFlappingSessionIsWrittenSeldom: of 3600 changes in an hour, some 120 are written,
// and the last word is what stands there in the end.
func TestAFlappingSessionIsWrittenSeldom(t *testing.T) {
	t.Parallel()
	keeping(t, func(s *server, tell func(report.Session)) {
		for range 1800 {
			tell(down)
			time.Sleep(time.Second)
			tell(up)
			time.Sleep(time.Second)
		}
		if asked, written := s.counted(); written < 10 || asked > 150 {
			t.Errorf("%d requests, of which %d writes, in an hour of flapping; want 10 writes, and 150 requests at most", asked, written)
		}
		tell(up)
		time.Sleep(2 * pause)
		if got := s.status().State; got != v1beta1.SessionEstablished {
			t.Errorf("the session is %s in the end", got)
		}
	})
}

// TestAttemptsAreHardlyWritten: a session that never comes up goes through its states with
// every attempt.
func TestAttemptsAreHardlyWritten(t *testing.T) {
	t.Parallel()
	keeping(t, func(s *server, tell func(report.Session)) {
		for range 720 {
			tell(down)
			time.Sleep(2 * time.Second)
			tell(refusing)
			time.Sleep(3 * time.Second)
		}
		if _, written := s.counted(); written == 0 || written > 16 {
			t.Errorf("%d writes in an hour of attempts, want 1 to 16", written)
		}
	})
}

// TestPrefixesAreWrittenOnceInAPause: the prefixes and their number change with every Service.
func TestPrefixesAreWrittenOnceInAPause(t *testing.T) {
	t.Parallel()
	keeping(t, func(s *server, tell func(report.Session)) {
		session := up
		tell(session)
		time.Sleep(time.Minute)
		s.counted()
		for range 600 {
			session.Advertised++
			session.Prefixes = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(session.Advertised >> 8), byte(session.Advertised)}), 32)}
			tell(session)
			time.Sleep(time.Second)
		}
		if _, written := s.counted(); written < 15 || written > 25 {
			t.Errorf("%d writes in ten minutes of new Services, want 15 to 25", written)
		}
		tell(down)
		time.Sleep(2 * settle)
		if got := s.status().State; got != v1beta1.SessionActive {
			t.Errorf("the session is %s a moment after it went down", got)
		}
	})
}

// TestTheNewestStateWaitsForTheServer: an API server that is away is asked ever less often,
// and learns the last word when it is back.
func TestTheNewestStateWaitsForTheServer(t *testing.T) {
	t.Parallel()
	keeping(t, func(s *server, tell func(report.Session)) {
		s.away = true
		for range 600 {
			tell(down)
			time.Sleep(time.Second)
			tell(up)
			time.Sleep(time.Second)
		}
		if asked, _ := s.counted(); asked < 5 || asked > 40 {
			t.Errorf("an API server that is away was asked %d times in 20 minutes, want 5 to 40", asked)
		}
		s.mu.Lock()
		s.away = false
		s.mu.Unlock()
		time.Sleep(2 * lastRetry)
		if got := s.status().State; got != v1beta1.SessionEstablished {
			t.Errorf("the session is %q once the API server is back", got)
		}
		s.counted()
		time.Sleep(relist - 3*time.Minute)
		if asked, _ := s.counted(); asked > 0 {
			t.Errorf("%d requests though nothing changed", asked)
		}
	})
}
