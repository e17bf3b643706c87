package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/speaker/bgp"
)

// traffic counts the BGP messages of each session when it is asked. The names are MetalLB's,
// but for the prefix, and so is what they mean.
type traffic struct {
	states func() map[string]bgp.State // by BGPPeer
}

// Describe leaves it to Collect to say what there is: a node may have no peers.
func (traffic) Describe(chan<- *prometheus.Desc) {}

// Collect tells of all sessions, since each was configured.
func (t traffic) Collect(to chan<- prometheus.Metric) {
	for peer, state := range t.states() {
		sent, received := state.Messages.Sent, state.Messages.Received
		for _, c := range []struct {
			name, help string
			count      uint64
		}{
			{"fairlead_bgp_opens_sent", "BGP OPEN messages sent.", sent.Open},
			{"fairlead_bgp_opens_received", "BGP OPEN messages received.", received.Open},
			{"fairlead_bgp_updates_total", "BGP UPDATE messages sent.", sent.Update},
			{"fairlead_bgp_updates_total_received", "BGP UPDATE messages received.", received.Update},
			{"fairlead_bgp_keepalives_sent", "BGP KEEPALIVE messages sent.", sent.Keepalive},
			{"fairlead_bgp_keepalives_received", "BGP KEEPALIVE messages received.", received.Keepalive},
			{"fairlead_bgp_notifications_sent", "BGP NOTIFICATION messages sent.", sent.Notification},
			{"fairlead_bgp_total_sent", "BGP messages sent.", sent.Total},
			{"fairlead_bgp_total_received", "BGP messages received.", received.Total},
		} {
			description := prometheus.NewDesc(c.name, c.help, []string{"peer"}, nil)
			to <- prometheus.MustNewConstMetric(description, prometheus.CounterValue, float64(c.count), peer)
		}
	}
}
