package houserules_test

import (
	"slices"
	"strings"
	"testing"
)

// TestNoSeriesVanishesFromAScrape: a vector that is emptied and filled again lacks series in between. What is
// replaced as a whole is a gauge.Set, or a Collector of its own.
func TestNoSeriesVanishesFromAScrape(t *testing.T) {
	for _, p := range packages(t) {
		if !slices.ContainsFunc(p.Imports, func(path string) bool { return strings.HasSuffix(path, "client_golang/prometheus") }) {
			continue
		}
		for at, call := range selected(t, p) {
			if slices.Contains([]string{"Reset", "DeletePartialMatch", "DeleteLabelValues"}, call.Sel.Name) {
				t.Errorf("%s: %s takes series out of scrapes: see internal/gauge", at, call.Sel.Name)
			}
		}
	}
}
