package command_test

import (
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// TestTwoThatLeaveAnAddressToEachOther: the owner dies while the others have different tables, as where one
// has lost the API server. Each is the next candidate of the other's table, and takes the address when it has found
// that nobody answers; the first that does has it, until the other one gets it by a new table.
func TestTwoThatLeaveAnAddressToEachOther(t *testing.T) { inBoth(t, leaveToEachOther) }

func leaveToEachOther(t *testing.T, p plan) {
	l := newLabOf(t, p, 3, patient...)
	l.start(t)
	first, second, third := l.nodes[0], l.nodes[1], l.nodes[2]
	candidates := func(n *node, names ...string) {
		table := l.table(n)
		table.Claims[l.vip] = desired.Candidacy{Candidates: names}
		table.Digests[desired.Bucket(l.vip)] = 1 // which the other tables have not
		n.say(table)
	}
	candidates(second, first.name, third.name, second.name)
	first.kill()
	owner := l.soleOwner(t, second, third)
	l.resolves(t, owner)
	other := map[*node]*node{second: third, third: second}[owner]
	if s, _ := other.client.State(); owns(s) {
		t.Errorf("%s and %s answer", owner.name, other.name)
	}
	candidates(other, first.name, other.name, owner.name)
	other.until("owner", owns)
	owner.until("rid of the address", func(s api.State) bool { return !owns(s) })
	l.resolves(t, other)
}

// soleOwner returns the one of the nodes that answers alone, a while later, too: where two find at once that none does,
// both answer for a moment.
func (l *lab) soleOwner(t *testing.T, nodes ...*node) *node {
	t.Helper()
	const settled = 200 * time.Millisecond
	var sole *node
	since := time.Now()
	for deadline := since.Add(soon); sole == nil || time.Since(since) < settled; time.Sleep(10 * time.Millisecond) {
		var now []*node
		for _, n := range nodes {
			if s, _ := n.client.State(); owns(s) {
				now = append(now, n)
			}
		}
		if len(now) != 1 {
			sole = nil
		} else if sole != now[0] {
			sole, since = now[0], time.Now()
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d nodes answer, want one", len(now))
		}
	}
	return sole
}
