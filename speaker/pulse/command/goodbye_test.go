package command_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"
)

func TestARestartMovesNothing(t *testing.T) { inBoth(t, restart) }

func restart(t *testing.T, p plan) {
	l := newLabOf(t, p, 2, patient...)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	l.resolves(t, first)
	s := l.traffic(t)
	s.served(t, first, 20)

	t.Logf("pulse ended after %v", first.terminate().Round(time.Millisecond))
	// Away for longer than the detection time, and nobody takes over.
	away := time.After(patientDetection * 11 / 10)
	for waiting := true; waiting; {
		select {
		case <-away:
			waiting = false
		case <-second.client.Changed():
		}
		if state, _ := second.client.State(); owns(state) {
			t.Fatal("the second node took over during a restart")
		}
	}
	first.startPulse()
	t.Logf("pulse answers again %v after it was started", first.until("owner", owns).Round(time.Millisecond))
	l.resolves(t, first)
	if got := s.nodes(); !slices.Equal(got, []string{first.name}) {
		t.Errorf("replies came from %v, want only from %s", got, first.name)
	}
	t.Logf("the client got no reply for %v at most", s.longestGap().Round(time.Millisecond))
}

func TestALeavingNodeHandsOverAtOnce(t *testing.T) { inBoth(t, leave) }

func leave(t *testing.T, p plan) {
	l := newLabOf(t, p, 2)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	l.resolves(t, first)
	s := l.traffic(t)
	table := l.table(first)
	table.Leaving = true
	oneOf(t, func() error {
		first.say(l.table(first))
		first.until("owner", owns)
		l.neighbour(t, first)
		s.anew()
		s.served(t, first, 20)
		first.say(table)
		took := l.neighbour(t, second)
		s.served(t, second, 20)
		t.Logf("a leaving node: the neighbour entry moved after %v, the client got no reply for %v",
			took.Round(time.Millisecond), s.longestGap().Round(time.Millisecond))
		if took > detection/2 {
			return fmt.Errorf("the neighbour entry moved after %v; leaving need not be detected", took)
		}
		return nil
	})
	first.terminate()
	l.ask()
	l.neighbour(t, second)
}

// TestANodeThatShutsDownHandsOverAndCountsAsDead: the next node takes over before the end, and the endpoints on the node
// are left soon after it, as on one that dies. A node that restarts would be waited for.
func TestANodeThatShutsDownHandsOverAndCountsAsDead(t *testing.T) { inBoth(t, shutDown) }

func shutDown(t *testing.T, p plan) {
	l := newLabOf(t, p, 2)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	l.resolves(t, first)
	table := l.table(first)
	table.Serving, table.Leaving, table.ShutsDown, table.Claims = false, true, true, nil
	first.say(table)
	l.neighbour(t, second)
	if state, _ := second.client.State(); slices.Contains(state.Silent, first.name) {
		t.Errorf("%s is said to be silent before its end: %v", first.name, state.Silent)
	}
	first.terminate()
	took := second.until("silence", func(s api.State) bool { return slices.Contains(s.Silent, first.name) })
	if took > 5*time.Second {
		t.Errorf("the node counts as dead %v after pulse ended, as if it restarted", took)
	}
	l.ask()
	l.neighbour(t, second)
}

// Both containers of a pod end at the same moment, and the agent may need a
// while to find out that the node is leaving. Pulse waits for two seconds.
func TestTheLastWordOfAnAgentIsHeard(t *testing.T) { inBoth(t, lastWord) }

func lastWord(t *testing.T, p plan) {
	l := newLabOf(t, p, 2)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	l.resolves(t, first)
	table := l.table(first)
	table.Leaving = true
	ended := make(chan time.Duration, 1)
	oneOf(t, func() error {
		go func() { ended <- first.terminate() }()
		time.Sleep(detection)
		state, connected := first.client.State()
		err := fmt.Errorf("connected %t, state %+v: pulse did not wait for the agent", connected, state)
		if connected && owns(state) {
			state, err = first.client.Apply(t.Context(), table)
			if err == nil && owns(state) {
				err = fmt.Errorf("state %+v, although the node leaves", state)
			}
		}
		if err != nil {
			<-ended
			first.startPulse()
			first.say(l.table(first))
			first.until("owner", owns)
		}
		return err
	})
	if t.Failed() {
		return
	}
	second.until("owner", owns)
	first.stopAgent()
	t.Logf("pulse ended after %v", (<-ended).Round(time.Millisecond))
	l.ask()
	l.neighbour(t, second)
}
