package forwarding

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

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
