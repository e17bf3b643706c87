package bgp

import (
	"sync/atomic"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/prometheus/client_golang/prometheus"
)

// Describe implements prometheus.Collector. It leaves it to Collect to say what there is: a node may have no peers.
func (*Speaker) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector: the state of each session, and its messages since it was configured.
// The names of the latter are MetalLB's, but for the prefix.
func (s *Speaker) Collect(to chan<- prometheus.Metric) { collect(s.States(), to) }

func collect(states map[string]State, to chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name, help, peer string, value float64) {
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, []string{"peer"}, nil), kind, value, peer)
	}
	for peer, state := range states {
		up := 0.0
		if state.Phase == Established {
			up = 1
		}
		send(prometheus.GaugeValue, "fairlead_bgp_session_up", "1 while the BGP session with the peer is established.", peer, up)
		send(prometheus.GaugeValue, "fairlead_bgp_advertised_prefixes", "Prefixes that the peer has been told of.", peer, float64(state.Advertised))
		send(prometheus.GaugeValue, "fairlead_bgp_pending_prefixes", "Prefixes that the peer is to be told of and has not been.", peer, float64(state.Pending))
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
			send(prometheus.CounterValue, c.name, c.help, peer, float64(c.count))
		}
	}
}

// Messages counts BGP messages since the session was configured.
type Messages struct {
	Sent, Received MessageCounts
}

// MessageCounts counts messages of one direction by type.
type MessageCounts struct {
	Open, Update, Keepalive, Notification, Total uint64
}

// traffic counts the messages of a session while they pass.
type traffic struct{ sent, received direction }

// direction counts by type, up to ROUTE-REFRESH.
type direction [packet.BGP_MSG_ROUTE_REFRESH + 1]atomic.Uint64

func (d *direction) count(kind byte) { d[kind].Add(1) }

func (d *direction) counts() MessageCounts {
	c := MessageCounts{
		Open: d[packet.BGP_MSG_OPEN].Load(), Update: d[packet.BGP_MSG_UPDATE].Load(),
		Keepalive: d[packet.BGP_MSG_KEEPALIVE].Load(), Notification: d[packet.BGP_MSG_NOTIFICATION].Load(),
	}
	c.Total = c.Open + c.Update + c.Keepalive + c.Notification + d[packet.BGP_MSG_ROUTE_REFRESH].Load()
	return c
}

func (t *traffic) messages() Messages {
	return Messages{Sent: t.sent.counts(), Received: t.received.counts()}
}
