package bgp

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.dev/fairlead/internal/testenv/scrape"
	"fairlead.dev/fairlead/speaker/desired"
)

// collected collects the metrics of these states.
type collected map[string]State

func (collected) Describe(chan<- *prometheus.Desc) {}

func (c collected) Collect(to chan<- prometheus.Metric) { collect(c, to) }

// TestMessagesAreCountedForEachPeer holds what each count counts: all of them differ.
func TestMessagesAreCountedForEachPeer(t *testing.T) {
	t.Parallel()
	if err := testutil.CollectAndCompare(collected(nil), strings.NewReader("")); err != nil {
		t.Error("without peers:", err)
	}
	all := collected{"tor": {
		Phase: Established, Advertised: 3, Pending: 2, Messages: Messages{
			Sent:     MessageCounts{Open: 1, Update: 2, Keepalive: 3, Notification: 4, Total: 10},
			Received: MessageCounts{Open: 5, Update: 6, Keepalive: 7, Notification: 8, Total: 26},
		},
	}}
	err := testutil.CollectAndCompare(all, strings.NewReader(`
# HELP fairlead_bgp_advertised_prefixes Prefixes that the peer has been told of.
# TYPE fairlead_bgp_advertised_prefixes gauge
fairlead_bgp_advertised_prefixes{peer="tor"} 3
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
# HELP fairlead_bgp_pending_prefixes Prefixes that the peer is to be told of and has not been.
# TYPE fairlead_bgp_pending_prefixes gauge
fairlead_bgp_pending_prefixes{peer="tor"} 2
# HELP fairlead_bgp_session_up 1 while the BGP session with the peer is established.
# TYPE fairlead_bgp_session_up gauge
fairlead_bgp_session_up{peer="tor"} 1
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

// TestEveryScrapeHasThePeersThatStay: series of a peer are in each scrape while its session begins anew, and
// other peers come and go.
func TestEveryScrapeHasThePeersThatStay(t *testing.T) {
	if runsApart(t) {
		return
	}
	s, gone := newSpeaker(t, slog.DiscardHandler), startPeer(t, "127.0.0.11:0", nil)
	_ = gone.listener.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	scrape.Holds(t, registry, func(i int) {
		stays, other := gone.identity(), gone.identity()
		stays.HoldTime += time.Duration(i%2) * time.Second
		if err := s.Apply(t.Context(), map[string]desired.Session{
			"tor": {Identity: stays, Routes: prefixes(vip)}, fmt.Sprint("other", i%2): {Identity: other, Routes: prefixes(vip)},
		}); err != nil {
			t.Error(err)
		}
	}, map[string][]float64{"fairlead_bgp_session_up tor": {0}, "fairlead_bgp_opens_sent tor": {0}, "fairlead_bgp_advertised_prefixes tor": {0}})
}
