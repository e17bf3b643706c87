package report

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/gauge"
)

// metrics are the speaker's own; names are documented in docs/metrics.md.
type metrics struct {
	apply      prometheus.Histogram
	failures   prometheus.Counter
	ports      *prometheus.GaugeVec
	changes    *prometheus.CounterVec
	problems   *gauge.Set
	owned      prometheus.Gauge
	obstructed *gauge.Set
}

func newMetrics() metrics {
	return metrics{
		apply: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fairlead_speaker_apply_duration_seconds",
			Help:    "Time from a decision to the kernel, layer 2 and BGP being told.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8), // 1 ms to 16 s,
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_speaker_apply_failures_total", Help: "Passes in which not everything could be applied.",
		}),
		ports: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_forwarding_ports", Help: "Service ports whose forwarding is in the kernel.",
		}, []string{"ip_family"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_speaker_changes_total", Help: "Changes of objects in what decisions read.",
		}, []string{"kind"}),
		problems: gauge.New("fairlead_speaker_problems", "Objects that do not get what they ask for on this node.", "kind", "reason"),
		owned: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_layer2_owned_addresses", Help: "Addresses that this node answers for on its networks.",
		}),
		obstructed: gauge.New("fairlead_layer2_obstructed_addresses", "Addresses that something on this node is in the way of, or that its kernel answers for besides the node that is to.", "reason"),
	}
}

func (m metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.apply, m.failures, m.changes, m.ports, m.problems, m.owned, m.obstructed}
}
