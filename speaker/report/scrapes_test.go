package report_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/problem"
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
	change := func(i int) {
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
	}
	change(0)
	done := make(chan struct{})
	stopped := make(chan struct{})
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
	for range 2000 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					found[f.GetName()+" "+l.GetValue()] = m.GetGauge().GetValue() == 1
				}
			}
		}
		for _, want := range []string{
			"fairlead_speaker_problems Always", "fairlead_layer2_obstructed_addresses " + report.ReasonAddressOnInterface,
		} {
			if !found[want] {
				t.Fatalf("a scrape lacks %s, or its value", want)
			}
		}
	}
}
