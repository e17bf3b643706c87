package reconcile

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/testenv/scrape"
)

// TestEveryScrapeHasThePoolsThatStay: what a pool has is in each scrape while other pools come and go.
func TestEveryScrapeHasThePoolsThatStay(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	object := problem.Object{Kind: "Service", Name: "web"}
	scrape.Holds(t, registry, func(i int) {
		m.passed(time.Millisecond, &decision{
			outcome:  allocation.Outcome{Usage: map[string]allocation.Usage{"lan": {IPv4: allocation.Counts{Assigned: 1}}, fmt.Sprint("other", i%2): {}}},
			problems: []problem.Problem{problem.New(object, "Always", "message"), problem.New(object, fmt.Sprint("Other", i%2), "message")},
		})
	}, map[string][]float64{"fairlead_pool_addresses lan": {0, 0, 0, 1}, "fairlead_pool_reserved_addresses lan": {0, 0}, "fairlead_problems Always": {1}})
}
