// Package gauge has gauges of which the whole set of series is replaced at once. A prometheus.GaugeVec that is
// Reset and filled again lacks series in every scrape that comes in between: sums dip, and absent() fires.
package gauge

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Set is a gauge with labels. Its methods may be called from several goroutines.
type Set struct {
	desc   *prometheus.Desc
	series atomic.Pointer[Series]
}

// Series are the values of a Set, by the values of its labels, see Key.
type Series map[string]float64

const separator = "\xff" // which no text in UTF-8 has

// Key joins the values of all labels of a series, in their order.
func Key(labels ...string) string { return strings.Join(labels, separator) }

// New makes a set without a series.
func New(name, help string, labels ...string) *Set {
	return &Set{desc: prometheus.NewDesc(name, help, labels, nil)}
}

// Replace makes series the only ones of the set. They must not be changed any more.
func (s *Set) Replace(series Series) { s.series.Store(&series) }

// Describe implements prometheus.Collector.
func (s *Set) Describe(to chan<- *prometheus.Desc) { to <- s.desc }

// Collect implements prometheus.Collector.
func (s *Set) Collect(to chan<- prometheus.Metric) {
	series := s.series.Load()
	if series == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(*series)) {
		to <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, (*series)[key], strings.Split(key, separator)...)
	}
}
