package pulse

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
	"fairlead.dev/fairlead/speaker/pulse/socket"
)

// TestAnAddressThatComesFromElsewhereIsUsedAtOnce: this node was no candidate for it, and another one has
// asked for it; but not if that one has hardly had the time, or if this one was asking.
func TestAnAddressThatComesFromElsewhereIsUsedAtOnce(t *testing.T) {
	here, there := api.Table{Node: "a", Serving: true, Claims: claim(vip4, "a")}, api.Table{Node: "a", Serving: true, Elsewhere: []netip.Addr{vip4}}
	for name, test := range map[string]struct {
		before api.Table
		heard  []neighbour.Claim
		after  time.Duration
		wait   bool
	}{
		"from elsewhere":                {there, nil, awayFor, false},
		"from elsewhere, just as there": {there, nil, awayFor - time.Millisecond, true},
		"it is asked for here":          {here, nil, probeEvery, true},
		"a stranger has it":             {here, []neighbour.Claim{says(vip4, stranger)}, time.Minute, true},
		"from nowhere":                  {api.Table{Node: "a", Serving: true}, nil, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := &around{view: serving("a"), links: links.NewSnapshot(linkstest.Ethernet(2, true))}
				s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: over{out, "ARP"}, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, LinkCheck: onOne{}, Log: testlog.New(t)})
				tables := []api.Table{{Node: "a", Serving: true}, test.before, test.before, here, here}
				for n, table := range tables {
					s.take(socket.Event{Table: &table, Number: uint64(n + 1)})
					s.settle(true)
					s.settle(false)
					if n == 1 {
						out.claims = test.heard
						s.settle(false)
						time.Sleep(test.after)
					}
				}
				if got := !does(s, vip4); got != test.wait {
					t.Errorf("it waits: %t, want %t", got, test.wait)
				}
			})
		})
	}
}
