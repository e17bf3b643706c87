package health

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/outcome"
)

// expect checks how many changes of IPv4 endpoints were measured, and how long they took
// together.
func (l *latency) expect(t *testing.T, count uint64, sum time.Duration) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(l.histogram)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].Metric) != 1 {
		t.Fatalf("gathered %v, %v", families, err)
	}
	if got := families[0].Metric[0].GetHistogram(); got.GetSampleCount() != count || got.GetSampleSum() != sum.Seconds() {
		t.Errorf("%d changes of together %v s are measured, want %d of %v", got.GetSampleCount(), got.GetSampleSum(), count, sum)
	}
}

func TestAChangeIsMeasuredOnceWhenTheKernelHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLatency()
		var n news
		begin := func(c *view.Cluster) {
			n = n.in(c)
			l.begin(c.Triggers, n)
		}
		other := view.Ref{Namespace: "shop", Name: "other"}
		of := func(service view.Ref) view.EndpointsOf { return view.EndpointsOf{Service: service, Family: addr.IPv4} }
		lacks := outcome.Missing{{Service: web, Name: "http", Family: addr.IPv4}: {}}
		snapshot := func(revision, since uint64, triggers map[view.EndpointsOf]time.Time, touched ...view.Ref) *view.Cluster {
			c := &view.Cluster{Triggers: triggers, Changes: view.Changes{Revision: revision, Since: since, Touched: map[view.Ref]struct{}{}}}
			for _, ref := range touched {
				c.Touched[ref] = struct{}{}
			}
			return c
		}
		first := map[view.EndpointsOf]time.Time{of(web): time.Now(), of(other): time.Now()}
		time.Sleep(time.Second)
		begin(snapshot(1, 0, first))
		l.applied(lacks, nil)
		l.expect(t, 1, time.Second) // other
		time.Sleep(time.Second)
		begin(snapshot(1, 0, first))
		l.applied(nil, nil)
		l.expect(t, 2, 3*time.Second)
		begin(snapshot(1, 0, first))
		l.applied(nil, nil)
		l.expect(t, 2, 3*time.Second)

		second := map[view.EndpointsOf]time.Time{of(web): time.Now(), of(other): first[of(other)]}
		time.Sleep(2 * time.Second)
		begin(snapshot(2, 1, second, web, other))
		l.applied(nil, nil)
		l.expect(t, 3, 5*time.Second)
		// Snapshots 3 and 4 are never seen; the clock of whoever set the trigger is ahead.
		third := map[view.EndpointsOf]time.Time{of(web): second[of(web)], of(other): time.Now().Add(time.Hour)}
		begin(snapshot(5, 4, third))
		l.applied(nil, nil)
		l.expect(t, 4, 5*time.Second)
		begin(snapshot(6, 5, third, web)) // touched by something else
		l.applied(nil, nil)
		l.expect(t, 4, 5*time.Second)
	})
}

// What a host never gets, since it has not the family, took no time when it is gone or comes after all.
func TestAFamilyThatTheHostHasNotIsNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLatency()
		of := view.EndpointsOf{Service: web, Family: addr.IPv6}
		l.begin(map[view.EndpointsOf]time.Time{of: time.Now()}, news{all: true})
		l.applied(outcome.Missing{{Service: web, Name: "http", Family: addr.IPv6}: {}}, map[addr.Family]bool{addr.IPv6: true})
		time.Sleep(24 * time.Hour)
		l.applied(nil, nil)
		if n := testutil.CollectAndCount(l.histogram); n != 0 {
			t.Errorf("%d families are measured", n)
		}
	})
}

func TestWhatWasMeasuredIsForgotten(t *testing.T) {
	l := newLatency()
	began := time.Now()
	for revision := range uint64(10) {
		triggers := map[view.EndpointsOf]time.Time{}
		for i := range 500 {
			triggers[view.EndpointsOf{Service: view.Ref{Name: string(rune('a' + revision)), Namespace: string(rune(i))}}] = began
		}
		l.begin(triggers, news{all: true})
		l.applied(nil, nil)
	}
	if len(l.underway) > 0 || len(l.measured) > 2*500+forgetAfter+500 {
		t.Errorf("%d triggers are kept", len(l.measured))
	}
}
