package command_test

import (
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"
)

// Power comes back to all nodes but the first one, of which Kubernetes says for a while that it is
// ready. Nobody has heard it; it does not answer for its own address either.
func TestNodesThatBeginBesideADeadOne(t *testing.T) { inBoth(t, besideADeadOne) }

func besideADeadOne(t *testing.T, p plan) {
	l := newLabOf(t, p, 3)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	restart := func() {
		for _, n := range l.nodes {
			n.kill()
		}
		for _, n := range l.nodes[1:] {
			n.startPulse()
			n.until("settled", func(s api.State) bool { return s.Settled })
		}
	}
	l.segment.Pull(first.plug)
	restart()
	took := second.until("owner", owns)
	t.Logf("taken over from a dead machine after %v", took.Round(time.Millisecond))
	l.resolves(t, second)
	for _, n := range l.nodes[1:] {
		n.until("without the first", func(s api.State) bool { return slices.Equal(s.Silent, []string{first.name}) })
	}

	l.segment.Plug(first.plug)
	first.startPulse()
	first.until("owner", owns)
	second.until("without the address", ownsNot)
	l.answering(t, first)
	for _, n := range l.nodes {
		n.until("with all", func(s api.State) bool { return len(s.Silent) == 0 && len(s.Alive) == len(l.nodes) })
	}

	t.Log("only pulse of the first does not run: it may be that its hellos are lost")
	restart()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, n := range l.nodes[1:] {
			if s, _ := n.client.State(); owns(s) {
				t.Fatalf("%s answers for what another node may have", n.name)
			}
		}
	}
	first.startPulse()
	l.answering(t, first)
}
