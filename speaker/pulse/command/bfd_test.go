package command_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// path is what the node says of its BFD session with the other.
func path(s api.State) bfd.Status { return s.BFD["other"] }

// bfdDetection is longer than a busy machine is silent, and shorter than a restart.
const bfdDetection = 5 * time.Second

// TestBFDGoesOn: while the agent is away, and over a restart of pulse, the other side
// notices nothing; it does of a crash, and hears of a node that leaves.
func TestBFDGoesOn(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	router, leaf := l.nodes[0], l.nodes[1]
	table := func(n *node, peer string) api.Table {
		table := l.table(n)
		table.BFD = map[string]desired.BFD{"other": {
			Peer: netip.MustParseAddr(peer), Transmit: 250 * time.Millisecond, Receive: 250 * time.Millisecond, Multiplier: 20,
		}}
		return table
	}
	up := func(s api.State) bool { return path(s).State == bfd.Up && path(s).Detection == bfdDetection }
	for n, peer := range map[*node]string{router: "192.0.2.2", leaf: "192.0.2.1"} {
		n.startPulse()
		n.startAgent()
		n.say(table(n, peer))
	}
	router.until("up", up)
	leaf.until("up", up)

	leaf.stopAgent()
	leaf.terminate()
	time.Sleep(bfdDetection * 11 / 10)
	leaf.startPulse()
	leaf.startAgent()
	leaf.say(table(leaf, "192.0.2.1"))
	leaf.until("up again", up)
	router.until("as before", up)
	if s, _ := router.client.State(); path(s).Failures != 0 {
		t.Errorf("a restart was taken for a failure: %+v", path(s))
	}
	metrics := get(t, router, "/metrics")
	for _, want := range []string{
		`fairlead_bfd_session_up{peer="other"} 1`, `fairlead_bfd_session_up_events{peer="other"} 1`,
		`fairlead_bfd_session_down_events{peer="other"} 0`, `fairlead_pulse_bfd_packets_rejected_total{reason="ttl"} 0`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}

	leaf.kill()
	router.until("down", func(s api.State) bool { return path(s).Diag == bfd.Expired && path(s).Failures == 1 })
	leaf.startPulse()
	router.until("up", up)
	leaf.until("up", up)

	leaving := l.table(leaf)
	leaving.Leaving, leaving.Serving = true, false
	leaf.say(leaving)
	router.until("told", func(s api.State) bool { return path(s).State == bfd.Down && path(s).Diag == bfd.NeighborDown })
	if s, _ := router.client.State(); path(s).Failures != 1 {
		t.Errorf("a farewell was taken for a failure: %+v", path(s))
	}
}
