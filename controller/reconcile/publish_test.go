package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
)

// writeTimeout is that of the tests.
const writeTimeout = 4 * time.Second

// server answers writes of statuses in the way that a test wants: fault has
// errors by name, and a name in hangs never gets an answer. The behaviour of a
// real one is tested beside the command.
type server struct {
	mu      sync.Mutex
	fault   map[string]error
	hangs   map[string]bool
	written []string // name@version, in the order of arrival
	told    []string
}

func (s *server) Status() client.SubResourceWriter { return statuses{server: s} }

// statuses are the subresource of the objects.
type statuses struct {
	client.SubResourceWriter
	server *server
}

func (s *server) Delete(ctx context.Context, o client.Object, _ ...client.DeleteOption) error {
	return s.answer(ctx, o, "-")
}

func (s statuses) Patch(ctx context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.server.answer(ctx, o, "")
}

func (s *server) answer(ctx context.Context, o client.Object, sign string) error {
	s.mu.Lock()
	s.written = append(s.written, sign+o.GetName()+"@"+o.GetResourceVersion())
	err, hangs := s.fault[o.GetName()], s.hangs[o.GetName()]
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (s *server) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, reason)
}

// took are the writes since the last call.
func (s *server) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	written := s.written
	s.written = nil
	return written
}

func (s *server) set(name string, fault error, hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault[name], s.hangs[name] = fault, hangs
}

// publishing runs a publisher in a bubble of synctest until the test ends.
func publishing(t *testing.T) (*publisher, *server, *bytes.Buffer) {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := &server{fault: map[string]error{}, hangs: map[string]bool{}}
	p := newPublisher(s, s, slog.New(slog.NewTextHandler(&log, nil)), metrics, writeTimeout)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return p, s, &log
}

// wants makes writes of "name@version".
func wants(texts ...string) map[problem.Object]write {
	writes := map[problem.Object]write{}
	for _, text := range texts {
		name, version, _ := strings.Cut(text, "@")
		base := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
		writes[problem.Object{Kind: "Service", Name: name}] = write{
			base: base, next: base.DeepCopy(), events: []status.Event{{Reason: "Wrote-" + name}},
		}
	}
	return writes
}

func expect(t *testing.T, s *server, want ...string) {
	t.Helper()
	synctest.Wait()
	if d := cmp.Diff(want, s.took()); d != "" {
		t.Errorf("writes (-want +got):\n%s", d)
	}
}

func TestPublishOnceAVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := publishing(t)
		p.apply(wants("a@1"))
		expect(t, s, "a@1")
		p.apply(wants("a@1")) // the informer does not show the write yet
		expect(t, s)
		p.apply(wants("a@2"))
		expect(t, s, "a@2")
		if d := cmp.Diff([]string{"Wrote-a", "Wrote-a"}, s.told); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
	})
}

func TestPublishConflict(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]error{
		"somebody was faster": apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed")),
		"deleted":             apierrors.NewNotFound(schema.GroupResource{}, "a"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, s, log := publishing(t)
				s.set("a", fault, false)
				p.apply(wants("a@1"))
				time.Sleep(time.Hour)
				expect(t, s, "a@1")
				if len(s.told) > 0 || strings.Contains(log.String(), "WARN") {
					t.Errorf("a matter of course was told: %v %s", s.told, log)
				}
				s.set("a", nil, false)
				p.apply(wants("a@2"))
				expect(t, s, "a@2")
			})
		})
	}
}

// TestPublishFailure: one object that cannot be written is tried again, more and
// more seldom, is spoken of once, and holds up nobody.
func TestPublishFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, log := publishing(t)
		s.set("bad", errors.New("no room"), false)
		p.apply(wants("bad@1"))
		expect(t, s, "bad@1")
		p.apply(wants("bad@1", "good@1"))
		synctest.Wait()
		if took := s.took(); !cmp.Equal(took[len(took)-1], "good@1") && !cmp.Equal(took[0], "good@1") {
			t.Errorf("the good one had to wait: %v", took)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(s.took()); n < 50 || n > 80 {
			t.Errorf("%d attempts in an hour, want about one a minute", n)
		}
		if n := strings.Count(log.String(), "cannot write"); n != 1 {
			t.Errorf("the failure was told %d times:\n%s", n, log)
		}
		s.set("bad", nil, false)
		time.Sleep(lastRetry)
		expect(t, s, "bad@1")
		time.Sleep(time.Hour)
		expect(t, s)
	})
}

func TestPublishWithdrawn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := publishing(t)
		s.set("a", errors.New("no room"), false)
		p.apply(wants("a@1"))
		expect(t, s, "a@1")
		p.apply(wants())
		time.Sleep(time.Hour)
		expect(t, s)
	})
}

// TestPublishHangs: as many writes hang as there are writers but one, and the
// rest goes on; those that hang end in time for another leader.
func TestPublishHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := publishing(t)
		hanging := make([]string, writers-1)
		for i := range hanging {
			hanging[i] = strings.Repeat("h", i+1) + "@1"
			s.set(strings.TrimSuffix(hanging[i], "@1"), nil, true)
		}
		p.apply(wants(hanging...))
		synctest.Wait()
		if n := len(s.took()); n != len(hanging) {
			t.Fatalf("%d writes are under way, want %d", n, len(hanging))
		}
		p.apply(wants(slices.Concat(hanging, []string{"a@1", "b@1"})...))
		synctest.Wait()
		if took := s.took(); len(took) != 2 {
			t.Errorf("beside those that hang: %v", took)
		}
		time.Sleep(writeTimeout - time.Millisecond)
		expect(t, s)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(s.took()); n != retriers {
			t.Errorf("%d writes are tried again, want %d", n, retriers)
		}
	})
}

// TestPublishBesideManyThatHang: once they have failed, any number of writes that hang hold
// up nobody.
func TestPublishBesideManyThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := publishing(t)
		hanging := make([]string, 10*writers)
		for i := range hanging {
			name := fmt.Sprintf("h%d", i)
			s.set(name, nil, true)
			hanging[i] = name + "@1"
		}
		p.apply(wants(hanging...))
		time.Sleep(time.Minute)
		for i := range 20 {
			s.took()
			good := fmt.Sprintf("good%d@1", i)
			p.apply(wants(append(slices.Clone(hanging), good)...))
			synctest.Wait()
			if took := s.took(); !slices.Contains(took, good) {
				t.Fatalf("it has to wait: %v are written", took)
			}
			time.Sleep(777 * time.Millisecond)
		}
	})
}

// TestPublishFailureAmongPasses: what fails is not tried more often because others change. What
// is newly wanted of it is tried at once.
func TestPublishFailureAmongPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := publishing(t)
		s.set("bad", errors.New("no room"), false)
		bad := problem.Object{Kind: "Service", Name: "bad"}
		at := func(reason string) map[problem.Object]write {
			writes := wants("bad@1")
			if next, ok := writes[bad].next.(*corev1.Service); ok {
				next.Status.Conditions = []metav1.Condition{{Reason: reason, LastTransitionTime: metav1.Now()}}
			}
			return writes
		}
		for range 600 {
			p.apply(at("Allocated"))
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(s.took()); n < 8 || n > 15 {
			t.Errorf("%d attempts in a minute, want those of the back-off", n)
		}
		p.apply(at("PoolExhausted"))
		expect(t, s, "bad@1")
	})
}

// TestAddressesAreWrittenBeforeCounts: a client waits for an address, and its pool counts it a little later, once
// for all that come until then. What is wrong with a pool is told at once.
func TestAddressesAreWrittenBeforeCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := publishing(t)
		with := func(assigned int64, ready metav1.ConditionStatus, services ...string) map[problem.Object]write {
			base := &v1beta1.IPAddressPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", ResourceVersion: "1"}}
			base.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}
			next := base.DeepCopy()
			next.Status.AssignedIPv4, next.Status.Conditions[0].Status = assigned, ready
			next.Status.Conditions[0].Message = fmt.Sprintf("%d of its addresses are not given out", assigned)
			all := wants(services...)
			all[problem.Object{Kind: "IPAddressPool", Name: "pool"}] = write{base: base, next: next}
			return all
		}
		p.apply(with(1, metav1.ConditionTrue, "a@1"))
		expect(t, s, "a@1")
		time.Sleep(countsLate / 2)
		p.apply(with(2, metav1.ConditionTrue, "b@1"))
		expect(t, s, "b@1")
		time.Sleep(countsLate / 2)
		expect(t, s, "pool@1")
		time.Sleep(time.Second)
		expect(t, s)
		p.apply(nil)
		p.apply(with(2, metav1.ConditionFalse))
		expect(t, s, "pool@1")
	})
}
