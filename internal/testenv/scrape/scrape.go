// Package scrape gathers metrics while what they tell changes.
package scrape

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Holds fails the test unless each of many scrapes has the wanted series, while changes run one after the
// other beside them; the first has run before. Each value of a label names series, as in
// "fairlead_problems Always", and what is wanted is their values, sorted.
func Holds(t *testing.T, from prometheus.Gatherer, change func(i int), want map[string][]float64) {
	t.Helper()
	scrapes := 2000
	if testing.Short() {
		scrapes = 400
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
	for range scrapes {
		found := gather(t, from)
		for series, values := range want {
			if !slices.Equal(found[series], values) {
				t.Fatalf("a scrape has the values %v of %s, want %v", found[series], series, values)
			}
		}
	}
}

func gather(t *testing.T, from prometheus.Gatherer) map[string][]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				series := f.GetName() + " " + l.GetValue()
				found[series] = append(found[series], m.GetGauge().GetValue()+m.GetCounter().GetValue())
			}
		}
	}
	for _, values := range found {
		slices.Sort(values)
	}
	return found
}
