package report_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/testenv/scrape"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
	"fairlead.dev/fairlead/speaker/report"
)

// TestEveryScrapeHasWhatIsThereAllTheTime: series that exist before and after a change are in each scrape
// meanwhile, while others come and go.
func TestEveryScrapeHasWhatIsThereAllTheTime(t *testing.T) {
	t.Parallel()
	config := toldTo(new(events))
	registry := prometheus.NewRegistry()
	config.Metrics = registry
	r := report.New(config)
	scrape.Holds(t, registry, func(i int) {
		o := anOutcome()
		o.Problems = []problem.Problem{
			problem.New(problem.Object{Kind: "Service", Name: "web"}, "Always", "message"),
			problem.New(problem.Object{Kind: "Service", Name: "web"}, fmt.Sprint("Other", i%2), "message"),
		}
		r.Report(o)
		r.Obstacles(map[hostchecks.Obstacle][]netip.Addr{
			{Kind: hostchecks.Held, Interface: "eth0"}:                 {vip},
			{Kind: hostchecks.Kind(int(hostchecks.ReversePath) + i%2)}: {vip},
		})
	}, map[string][]float64{
		"fairlead_speaker_problems Always":                                        {1},
		"fairlead_layer2_obstructed_addresses " + report.ReasonAddressOnInterface: {1},
	})
}
