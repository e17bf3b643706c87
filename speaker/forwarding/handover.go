package forwarding

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/nftables"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/outcome"
)

// handover hands over to other nodes the connections that these have, of addresses that have moved. It is
// the same for all backends, and the collector of its metric: the kernel counts, and is asked for each scrape.
type handover struct{ *nftables.Handover }

// newHandover registers its metric, unless the registry is nil.
func newHandover(g *kernelwatch.Generation, registry prometheus.Registerer) *handover {
	h := &handover{nftables.NewHandover(g)}
	if registry != nil {
		registry.MustRegister(h)
	}
	return h
}

// apply returns a *outcome.SettingError while the kernel does not take what hands over: all ports are in
// place nevertheless.
func (h *handover) apply(want desired.Forwarding) error {
	if want.Former == nil {
		return nil
	}
	if err := h.Apply(want.Former, want.FormerRevision); err != nil {
		return &outcome.SettingError{Of: "handover", Err: err}
	}
	return nil
}

func (*handover) description() *prometheus.Desc {
	return prometheus.NewDesc("fairlead_forwarding_handed_over_packets_total",
		"Packets of connections that this node does not know, handed over to the node that had their address before.", []string{"ip_family"}, nil)
}

// Describe implements prometheus.Collector.
func (h *handover) Describe(to chan<- *prometheus.Desc) { to <- h.description() }

// Collect implements prometheus.Collector.
func (h *handover) Collect(to chan<- prometheus.Metric) {
	for _, family := range addr.Families() {
		packets, err := h.Packets(family)
		if err != nil {
			to <- prometheus.NewInvalidMetric(h.description(), err)
			continue
		}
		to <- prometheus.MustNewConstMetric(h.description(), prometheus.CounterValue, float64(packets), family.String())
	}
}
