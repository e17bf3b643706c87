package forwarding

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
	"fairlead.dev/fairlead/speaker/outcome"
)

// metrics of forwarding are alike for all backends.
type metrics struct {
	syncs    *prometheus.HistogramVec
	failures *prometheus.CounterVec
	rules    *prometheus.GaugeVec
	repairs  *prometheus.CounterVec
	full     *prometheus.GaugeVec
	noLocal  *prometheus.GaugeVec
	cleaning prometheus.Histogram
	flows    *prometheus.CounterVec

	revision uint64 // of the wanted ports that all are in the kernel; 0: not all are
	repaired map[addr.Family]int
	unserved unserved
}

// newMetrics registers the metrics, unless the registry is nil.
func newMetrics(registry prometheus.Registerer) *metrics {
	const family = "ip_family"
	buckets := prometheus.ExponentialBuckets(0.00025, 2, 18) // 0.25 ms to 33 s
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{family})
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		repaired: map[addr.Family]int{}, unserved: newUnserved(),
		syncs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_forwarding_sync_duration_seconds", Buckets: buckets,
			Help: "Time to bring the kernel to what is wanted: of everything (full), of what changed (partial), or of nothing but to look for what others did (check).",
		}, []string{"kind"}),
		failures: counter("fairlead_forwarding_sync_failures_total", "Syncs after which the kernel was not all as wanted."),
		rules:    gauge("fairlead_forwarding_rules", "Rules of ours, or map elements with nftables.", family),
		repairs:  counter("fairlead_forwarding_repairs_total", "Chains, jumps, sets and maps of ours that others changed or removed, and that were written again."),
		full:     gauge("fairlead_forwarding_affinity_full", "Lists of clients of session affinity that had no room for another when they were last looked at: one for each endpoint, or with nftables one for all.", family),
		noLocal: gauge("fairlead_forwarding_no_local_endpoints",
			"Service ports with a Local traffic policy and endpoints on other nodes only.", "traffic_policy", family),
		cleaning: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fairlead_forwarding_conntrack_clean_duration_seconds", Buckets: buckets,
			Help: "Time to look through the connection table for stale flows of a protocol.",
		}),
		flows: counter("fairlead_forwarding_conntrack_deleted_flows_total", "Flows that were deleted because their endpoint is gone, they had begun past the Service, or they had ended before this node took their address."),
	}
	if registry != nil {
		registry.MustRegister(m.syncs, m.failures, m.rules, m.repairs, m.full, m.noLocal, m.cleaning, m.flows)
	}
	return m
}

func (m *metrics) timed(del deleteFlows) deleteFlows {
	return func(family addr.Family, protocol view.Protocol, lock sync.Locker, stale func(conntrack.Flow) bool) (int, error) {
		began := time.Now()
		n, err := del(family, protocol, lock, stale)
		m.cleaning.Observe(time.Since(began).Seconds())
		m.deleted(family, n)
		return n, err
	}
}

// deleted counts flows that were.
func (m *metrics) deleted(family addr.Family, n int) {
	m.flows.WithLabelValues(family.String()).Add(float64(n))
}

func (m *metrics) count(want desired.Forwarding, missing outcome.Missing, err error, took time.Duration, of Gauge) {
	kind := "full"
	switch m.revision {
	case 0:
	case want.Revision:
		kind = "check"
	case want.Since:
		kind = "partial"
	}
	m.syncs.WithLabelValues(kind).Observe(took.Seconds())
	if m.revision = want.Revision; outcome.Failing(err) != nil {
		m.revision = 0
	}
	failed, later := map[addr.Family]bool{}, outcome.PutOff(err)
	if len(missing) > len(later) {
		for key := range missing {
			if _, putOff := later[key]; !putOff {
				failed[key.Family] = true
			}
		}
	}
	for _, of := range outcome.AllOf[*outcome.FamilyError](err) {
		failed[of.Family] = true
	}
	for family := range outcome.Absent(err) {
		delete(failed, family)
	}
	m.unserved.update(want)
	for _, family := range addr.Families() {
		name := family.String()
		failures := m.failures.WithLabelValues(name)
		if failed[family] {
			failures.Inc()
		}
		rules, repairs := of.Tally(family)
		m.rules.WithLabelValues(name).Set(float64(rules))
		m.repairs.WithLabelValues(name).Add(float64(max(repairs-m.repaired[family], 0))) // fewer after a Cleanup
		m.repaired[family] = repairs
		m.full.WithLabelValues(name).Set(float64(of.AffinityOverflows(family)))
		for i, policy := range []string{"internal", "external"} {
			m.noLocal.WithLabelValues(policy, name).Set(float64(m.unserved.count[family][i]))
		}
	}
}

// unserved counts the ports whose traffic is dropped on this node because a policy, internal or external, is
// Local and the endpoints are elsewhere.
type unserved struct {
	revision uint64
	ports    map[desired.PortKey][2]bool // those of which some is, by policy
	count    map[addr.Family][2]int
}

func newUnserved() unserved {
	return unserved{ports: map[desired.PortKey][2]bool{}, count: map[addr.Family][2]int{}}
}

func (u *unserved) update(want desired.Forwarding) {
	for key := range want.ChangedSince(u.revision, maps.Keys(u.ports)) {
		u.look(key, want.Ports[key])
	}
	u.revision = want.Revision
}

// look counts one port; the zero port is one that is gone.
func (u *unserved) look(key desired.PortKey, port desired.Port) {
	var now [2]bool
	if len(port.Local) == 0 && port.Anywhere {
		now = [2]bool{port.InternalLocal, port.ExternalLocal}
	}
	before, count := u.ports[key], u.count[key.Family]
	for i := range now {
		switch {
		case now[i] && !before[i]:
			count[i]++
		case before[i] && !now[i]:
			count[i]--
		}
	}
	u.count[key.Family] = count
	if u.ports[key] = now; now == ([2]bool{}) {
		delete(u.ports, key)
	}
}

// handedOver is the metric of the table that pulse writes: the kernel counts, and is asked for each scrape.
type handedOver struct{}

func (handedOver) description() *prometheus.Desc {
	return prometheus.NewDesc("fairlead_forwarding_handed_over_packets_total",
		"Packets of connections that this node does not know, handed over to the node that had their address before.", []string{"ip_family"}, nil)
}

// Describe implements prometheus.Collector.
func (h handedOver) Describe(to chan<- *prometheus.Desc) { to <- h.description() }

// Collect implements prometheus.Collector.
func (h handedOver) Collect(to chan<- prometheus.Metric) {
	for _, family := range addr.Families() {
		table := nftable.New(family, kernelwatch.HandoverTable)
		packets, err := table.Packets()
		if err != nil {
			to <- prometheus.NewInvalidMetric(h.description(), err)
			continue
		}
		to <- prometheus.MustNewConstMetric(h.description(), prometheus.CounterValue, float64(packets), family.String())
	}
}
