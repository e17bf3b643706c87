package main

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.dev/fairlead/speaker/bgp"
)

// TestMessagesAreCountedForEachPeer holds what each count counts: all of them differ.
func TestMessagesAreCountedForEachPeer(t *testing.T) {
	t.Parallel()
	if err := testutil.CollectAndCompare(traffic{func() map[string]bgp.State { return nil }}, strings.NewReader("")); err != nil {
		t.Error("without peers:", err)
	}
	all := traffic{func() map[string]bgp.State {
		return map[string]bgp.State{"tor": {Messages: bgp.Messages{
			Sent:     bgp.MessageCounts{Open: 1, Update: 2, Keepalive: 3, Notification: 4, Total: 10},
			Received: bgp.MessageCounts{Open: 5, Update: 6, Keepalive: 7, Notification: 8, Total: 26},
		}}}
	}}
	err := testutil.CollectAndCompare(all, strings.NewReader(`
# HELP fairlead_bgp_keepalives_received BGP KEEPALIVE messages received.
# TYPE fairlead_bgp_keepalives_received counter
fairlead_bgp_keepalives_received{peer="tor"} 7
# HELP fairlead_bgp_keepalives_sent BGP KEEPALIVE messages sent.
# TYPE fairlead_bgp_keepalives_sent counter
fairlead_bgp_keepalives_sent{peer="tor"} 3
# HELP fairlead_bgp_notifications_sent BGP NOTIFICATION messages sent.
# TYPE fairlead_bgp_notifications_sent counter
fairlead_bgp_notifications_sent{peer="tor"} 4
# HELP fairlead_bgp_opens_received BGP OPEN messages received.
# TYPE fairlead_bgp_opens_received counter
fairlead_bgp_opens_received{peer="tor"} 5
# HELP fairlead_bgp_opens_sent BGP OPEN messages sent.
# TYPE fairlead_bgp_opens_sent counter
fairlead_bgp_opens_sent{peer="tor"} 1
# HELP fairlead_bgp_total_received BGP messages received.
# TYPE fairlead_bgp_total_received counter
fairlead_bgp_total_received{peer="tor"} 26
# HELP fairlead_bgp_total_sent BGP messages sent.
# TYPE fairlead_bgp_total_sent counter
fairlead_bgp_total_sent{peer="tor"} 10
# HELP fairlead_bgp_updates_total BGP UPDATE messages sent.
# TYPE fairlead_bgp_updates_total counter
fairlead_bgp_updates_total{peer="tor"} 2
# HELP fairlead_bgp_updates_total_received BGP UPDATE messages received.
# TYPE fairlead_bgp_updates_total_received counter
fairlead_bgp_updates_total_received{peer="tor"} 6
`))
	if err != nil {
		t.Error(err)
	}
}
