package command

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// Of the BFD sessions there are the metrics that MetalLB has, under its names but
// for the prefix. There are no echo packets to count.
var (
	bfdUp       = prometheus.NewDesc("fairlead_bfd_session_up", "1 while the BFD session with the peer is up.", []string{"peer"}, nil)
	bfdInput    = prometheus.NewDesc("fairlead_bfd_control_packet_input", "BFD control packets received in the session.", []string{"peer"}, nil)
	bfdOutput   = prometheus.NewDesc("fairlead_bfd_control_packet_output", "BFD control packets sent in the session.", []string{"peer"}, nil)
	bfdUps      = prometheus.NewDesc("fairlead_bfd_session_up_events", "How often the BFD session came up.", []string{"peer"}, nil)
	bfdDowns    = prometheus.NewDesc("fairlead_bfd_session_down_events", "How often the BFD session was up no more.", []string{"peer"}, nil)
	bfdRejected = describe("bfd_packets_rejected_total", "Datagrams on the BFD ports that were not taken.", "reason")
)

// collectBFD reads the counts of the BFD sessions.
func (c *collector) collectBFD(to sink) {
	sessions, rejected := c.sessions.Stats()
	for peer, s := range sessions {
		to.is(bfdUp, s.Up, peer)
		to.counter(bfdInput, s.Received, peer)
		to.counter(bfdOutput, s.Sent, peer)
		to.counter(bfdUps, s.Ups, peer)
		to.counter(bfdDowns, s.Downs, peer)
	}
	for _, reason := range bfd.Reasons() {
		to.counter(bfdRejected, rejected[reason], string(reason))
	}
}
