package bgp

import (
	"sync/atomic"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

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
