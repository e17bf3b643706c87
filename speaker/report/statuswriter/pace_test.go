package statuswriter

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/bgp"
)

// server stores the objects and counts what it is asked. The behaviour of a real one is
// tested beside.
type server struct {
	client.Client // nil: what is not below is not asked
	mu            sync.Mutex
	away          bool
	refuses       string // the name of an object; empty: none
	refused       int    // how often
	stored        map[string]client.Object
	asked         int // of any kind
	written       int
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
	if o.GetName() == s.refuses {
		s.refused++
		return apierrors.NewForbidden(v1beta1.GroupVersion.WithResource("bgpsessions").GroupResource(), o.GetName(), nil)
	}
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
	if o.GetName() == s.refuses {
		s.refused++
		return apierrors.NewInvalid(v1beta1.GroupVersion.WithKind("BGPSession").GroupKind(), o.GetName(), nil)
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

// refuse has the server refuse the object from now on, and returns how often it refused one until now.
func (s *server) refuse(name string) (refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused = s.refused
	s.refuses, s.refused = name, 0
	return refused
}

// names are those of the objects that there are, sorted.
func (s *server) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.stored))
}

// keeping runs a writer in a bubble of synctest.
func keeping(t *testing.T, test func(*server, func(bgp.State))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{stored: map[string]client.Object{}}
		k := NewSessions("node1", s, slog.New(slog.DiscardHandler))
		stop := running(t, k.Run)
		test(s, func(session bgp.State) {
			k.Set(types.UID("uid"), map[string]bgp.State{"tor": session}, nil)
		})
		stop()
	})
}

// running runs a writer until stop.
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
	up       = bgp.State{Phase: bgp.Established}
	down     = bgp.State{Phase: bgp.Active, LastError: "no answer"}
	refusing = bgp.State{Phase: bgp.Idle, LastError: "no answer"}
)

// TestAFlappingSessionIsWrittenSeldom: of 3600 changes in an hour, some 120 are written,
// and the last word is what stands there in the end.
func TestAFlappingSessionIsWrittenSeldom(t *testing.T) {
	t.Parallel()
	keeping(t, func(s *server, tell func(bgp.State)) {
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
	keeping(t, func(s *server, tell func(bgp.State)) {
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
	keeping(t, func(s *server, tell func(bgp.State)) {
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
	keeping(t, func(s *server, tell func(bgp.State)) {
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

// TestOneThatIsRefusedKeepsNobodyWaiting: the API server takes all but one object, which is tried ever less
// often, and written once it is taken; and removed likewise.
func TestOneThatIsRefusedKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{stored: map[string]client.Object{}, refuses: "edge.node1"}
		k := NewSessions("node1", s, slog.New(slog.DiscardHandler))
		stop := running(t, k.Run)
		tell := func(sessions map[string]bgp.State) {
			k.Set(types.UID("uid"), sessions, nil)
			time.Sleep(settle + time.Millisecond)
		}
		wants := func(when string, want ...string) {
			t.Helper()
			if got := s.names(); !slices.Equal(got, want) {
				t.Errorf("%s: there are %v, want %v", when, got, want)
			}
		}
		tell(map[string]bgp.State{"edge": up, "tor": up})
		wants("one is refused", "tor.node1")
		time.Sleep(10 * time.Minute)
		tell(map[string]bgp.State{"edge": up, "tor": down})
		if got := s.status().State; got != v1beta1.SessionActive {
			t.Errorf("the session is %s a moment after it went down", got)
		}
		if refused := s.refuse(""); refused < 10 || refused > 20 {
			t.Errorf("tried %d times in ten minutes, want 10 to 20", refused)
		}
		time.Sleep(lastRetry)
		wants("none is refused", "edge.node1", "tor.node1")

		s.refuse("edge.node1")
		tell(map[string]bgp.State{"core": up})
		wants("one is not removed", "core.node1", "edge.node1")
		time.Sleep(10 * time.Minute)
		if refused := s.refuse("edge.node1"); refused < 10 || refused > 20 {
			t.Errorf("tried to remove it %d times in ten minutes, want 10 to 20", refused)
		}
		stop()
		if err := k.Remove(t.Context()); !apierrors.IsForbidden(err) {
			t.Errorf("leaving: %v, want that one object is not removed", err)
		}
		wants("it is left", "edge.node1")
		s.refuse("")
		if err := k.Remove(t.Context()); err != nil {
			t.Errorf("leaving: %v", err)
		}
		wants("none is left")
	})
}
