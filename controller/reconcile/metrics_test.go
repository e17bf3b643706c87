package reconcile

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/problem"
)

// TestEveryScrapeHasThePoolsThatStay: what a pool has is in each scrape while other pools come and go.
func TestEveryScrapeHasThePoolsThatStay(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	change := func(i int) {
		object := problem.Object{Kind: "Service", Name: "web"}
		m.passed(time.Millisecond, &decision{
			outcome:  allocation.Outcome{Usage: map[string]allocation.Usage{"lan": {IPv4: allocation.Counts{Assigned: 1}}, fmt.Sprint("other", i%2): {}}},
			problems: []problem.Problem{problem.New(object, "Always", "message"), problem.New(object, fmt.Sprint("Other", i%2), "message")},
		})
	}
	change(0)
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 1; ; i++ {
			select {
			case <-done:
				return
			default:
				change(i)
			}
		}
	}()
	defer func() {
		close(done)
		<-stopped
	}()
	want := map[string]int{"fairlead_pool_addresses lan": 4, "fairlead_pool_reserved_addresses lan": 2, "fairlead_problems Always": 1}
	for range 2000 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]int{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					found[f.GetName()+" "+l.GetValue()]++
				}
			}
		}
		for series, n := range want {
			if found[series] != n {
				t.Fatalf("a scrape has %d series of %s, want %d", found[series], series, n)
			}
		}
	}
}
