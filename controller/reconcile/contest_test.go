package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view"
)

// rivalry is one Service, and somebody else who writes its status.
type rivalry struct {
	publisher *publisher
	server    *server
	version   int
}

// want has the status of the next version of the Service, which shows one address, show another.
func (r *rivalry) want(shown, wanted string) {
	r.version++
	showing := func(ip string) *corev1.Service {
		s := balanced("a", fmt.Sprint(r.version))
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip}}
		return s
	}
	r.publisher.apply(map[problem.Object]write{{Kind: "Service", Name: "a"}: {
		base: showing(shown), next: showing(wanted), events: []status.Event{{Reason: "Released", Note: shown}, {Reason: "Allocated", Note: wanted}},
	}})
	synctest.Wait()
}

// fight has somebody else write over the status as soon as it is written, for some time.
func (r *rivalry) fight(wanted string, lasts time.Duration) (writes int) {
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if n := len(r.server.took()); n > 0 {
			writes += n
			r.want("192.0.2.66", wanted)
		}
	}
	return writes
}

// TestContest: two that each want the last word about a status write it more and more seldom,
// and say each thing once. What is new goes at once, and so does the first write after a quiet time.
func TestContest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := publishing(t)
		r := &rivalry{publisher: p, server: s}
		r.want("", "192.0.2.1")
		if n := r.fight("192.0.2.1", time.Hour); n < 60 || n > 70 {
			t.Errorf("%d writes in an hour, want about one a minute", n)
		}
		if d := cmp.Diff([]string{"Released", "Allocated", "Released"}, s.told); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
		if got := p.contested(time.Now()); len(got) != 1 {
			t.Errorf("contested: %v", got)
		}
		s.took()
		r.want("192.0.2.66", "192.0.2.2")
		expect(t, s, fmt.Sprintf("a@%d", r.version))
		r.want("192.0.2.66", "192.0.2.2")
		expect(t, s)
		time.Sleep(lastPause)
		expect(t, s, fmt.Sprintf("a@%d", r.version))

		time.Sleep(quiet)
		if got := p.contested(time.Now()); len(got) > 0 {
			t.Errorf("contested after a quiet time: %v", got)
		}
		r.want("192.0.2.2", "192.0.2.3")
		expect(t, s, fmt.Sprintf("a@%d", r.version))
		r.want("192.0.2.66", "192.0.2.3")
		expect(t, s, fmt.Sprintf("a@%d", r.version))
		if got := p.contested(time.Now()); len(got) > 0 {
			t.Errorf("contested after one slip: %v", got)
		}
	})
}

// TestContestOfOne: changes of mind are no contest, however often they come.
func TestContestOfOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := publishing(t)
		r := &rivalry{publisher: p, server: s}
		for i := range 20 {
			r.want(fmt.Sprintf("192.0.2.%d", (i+1)%2), fmt.Sprintf("192.0.2.%d", i%2))
			expect(t, s, fmt.Sprintf("a@%d", r.version))
		}
		if got := p.contested(time.Now()); len(got) > 0 || len(s.told) != 40 {
			t.Errorf("contested: %v; told %d things, want 40", got, len(s.told))
		}
	})
}

// TestContestIsTold: a Service whose status is contested has all that it asks for, and says
// what to do; when the contest is over, a pass is due that takes that back.
func TestContestIsTold(t *testing.T) {
	t.Parallel()
	o := filled(t, 2, nil)
	at := time.Unix(1, 0)
	object := problem.Object{Kind: "Service", Namespace: "default", Name: "s00001"}
	s := o.snapshot()
	s.contested = map[problem.Object]time.Time{object: at.Add(quiet), {Kind: "Service", Namespace: "default", Name: "gone"}: at.Add(time.Hour)}
	d := decide(s, &decision{}, indelible{}, view.Classes{}, at)
	w, ok := d.writes[object]
	if !ok || len(d.writes) != 1 || len(d.problems) != 2 { // the pool has one of its own
		t.Fatalf("writes to %v; problems %v", slices.Collect(maps.Keys(d.writes)), d.problems)
	}
	next, ok := w.next.(*corev1.Service)
	if !ok {
		t.Fatalf("a status of %T is written", w.next)
	}
	c := next.Status.Conditions[0]
	if c.Type != v1beta1.ConditionAllocated || c.Status != "True" || c.Reason != ReasonStatusContested || !strings.Contains(c.Message, "loadBalancerClass") {
		t.Errorf("condition %+v", c)
	}
	if len(w.events) != 1 || w.events[0].Reason != ReasonStatusContested {
		t.Errorf("events %v", w.events)
	}
	if due := d.due(); !due.Equal(at.Add(quiet)) {
		t.Errorf("the next pass is due at %s", due)
	}
	apply(t, o, d)
	s = o.snapshot()
	s.contested = nil
	d = decide(s, d, indelible{}, view.Classes{}, at.Add(quiet))
	if next, ok := d.writes[object].next.(*corev1.Service); !ok || next.Status.Conditions[0].Reason != v1beta1.ReasonAllocated {
		t.Errorf("after the contest: %+v", d.writes)
	}
}
