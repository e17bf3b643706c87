package command_test

import (
	"fmt"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// prefers is the table of a node when these nodes are the first candidates, in this order.
func (l *lab) prefers(n *node, first ...*node) api.Table {
	t := l.table(n)
	var names []string
	for _, f := range first {
		names = append(names, f.name)
	}
	t.Claims[l.vip] = desired.Candidacy{Candidates: names}
	return t
}

// Another node is preferred, as when preferredNodeSelectors or labels change: the address moves there, whichever
// node learns of it first, and the client, which asks every other millisecond, gets no reply for 50 ms at most.
func TestAPreferredNodeTakesOverWithoutAGap(t *testing.T) { inBoth(t, preference) }

func preference(t *testing.T, p plan) {
	l := newLabOf(t, p, 3)
	l.start(t)
	first, second, third := l.nodes[0], l.nodes[1], l.nodes[2]
	l.resolves(t, first)
	s := l.traffic(t)
	oneOf(t, func() error {
		var worst time.Duration
		for _, learns := range [][]*node{{first, second, third}, {second, first, third}, {third, second, first}} {
			from, to := first, second
			for range 2 { // there, and back
				s.served(t, from, 20)
				s.anew()
				for _, n := range learns {
					n.say(l.prefers(n, to, from, third))
					time.Sleep(100 * time.Millisecond) // so much later the next one learns of it
				}
				to.until("owner", owns)
				from.until("without the address", ownsNot)
				s.served(t, to, 20)
				l.neighbour(t, to)
				gap := s.longestGap()
				t.Logf("%s is preferred to %s: the client got no reply for %v", to.name, from.name, gap.Round(time.Millisecond))
				worst = max(worst, gap)
				from, to = to, from
			}
		}
		if worst > detection/10 {
			return fmt.Errorf("no reply for %v", worst)
		}
		return nil
	})
}
