package forwarding

import (
	"context"
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/kernelwatch"
	"fairlead.dev/fairlead/speaker/forwarding/nftables"
	"fairlead.dev/fairlead/speaker/outcome"
)

// handing is what forwards together with what hands over to other nodes the connections
// that these have, of addresses that have moved. That is the same for all backends.
type handing struct {
	Forwarder
	over *nftables.Handover
}

// newHanding registers its metric, unless the registry is nil.
func newHanding(f Forwarder, over *nftables.Handover, registry prometheus.Registerer) *handing {
	h := &handing{Forwarder: f, over: over}
	if registry != nil {
		registry.MustRegister(handed{h.over})
	}
	return h
}

// Apply implements Backend. While the kernel does not take what hands over, all ports are in
// place nevertheless: that is a *outcome.SettingError.
func (h *handing) Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error) {
	missing, err := h.Forwarder.Apply(ctx, want)
	if want.Former == nil {
		return missing, err
	}
	if failed := h.over.Apply(want.Former, want.Handing); failed != nil {
		err = errors.Join(err, &outcome.SettingError{Of: "handover", Err: failed})
	}
	return missing, err
}

// Watch implements Backend.
func (h *handing) Watch(ctx context.Context, disturbed func()) {
	var both sync.WaitGroup
	both.Go(func() { kernelwatch.Poll(ctx, kernelwatch.Interval, h.over.Disturbed, disturbed) })
	h.Forwarder.Watch(ctx, disturbed)
	both.Wait()
}

// Cleanup implements Backend.
func (h *handing) Cleanup(ctx context.Context) error {
	return errors.Join(h.over.Cleanup(), h.Forwarder.Cleanup(ctx))
}

// handed is the metric of what is handed over. The kernel counts, and is asked when somebody
// wants to know.
type handed struct{ over *nftables.Handover }

func (handed) description() *prometheus.Desc {
	return prometheus.NewDesc("fairlead_forwarding_handed_over_packets_total",
		"Packets of connections that this node does not know, handed over to the node that had their address before.", []string{"ip_family"}, nil)
}

// Describe implements prometheus.Collector.
func (h handed) Describe(to chan<- *prometheus.Desc) { to <- h.description() }

// Collect implements prometheus.Collector.
func (h handed) Collect(to chan<- prometheus.Metric) {
	for _, family := range addr.Families() {
		packets, err := h.over.Packets(family)
		if err != nil {
			to <- prometheus.NewInvalidMetric(h.description(), err)
			continue
		}
		to <- prometheus.MustNewConstMetric(h.description(), prometheus.CounterValue, float64(packets), family.String())
	}
}
