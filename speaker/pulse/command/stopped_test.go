package command_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"
)

// TestAStoppedPulse: pulse is stopped for two seconds, as with a machine that is moved or
// swaps. Another node takes over; when it goes on, one answers again soon, and it did not
// take its own pause for the death of others.
func TestAStoppedPulse(t *testing.T) {
	t.Parallel()
	inBothAtOnce(t, stoppedPulse)
}

func stoppedPulse(t *testing.T, p plan) {
	const stopped = 2 * time.Second
	l := newLabOf(t, p, 3)
	l.start(t)
	first, second := l.nodes[0], l.nodes[1]
	asking := l.asking(t)
	oneOf(t, func() error {
		first.until("owner", owns)
		second.until("without the address", func(s api.State) bool { return !owns(s) })
		begun := time.Now()
		if err := first.process.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		second.until("owner", owns)
		l.resolves(t, second)
		time.Sleep(stopped - time.Since(begun))
		asking.anew()
		if err := first.process.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		second.until("without the address", func(s api.State) bool { return !owns(s) })
		l.resolves(t, first)
		both := asking.both(first, second)
		t.Logf("two nodes answered for %v", both.Round(time.Millisecond))
		if both > detection {
			return fmt.Errorf("two nodes answered for %v", both)
		}
		if s, _ := first.client.State(); len(s.Alive) != len(l.nodes) {
			return fmt.Errorf("node-1 took its own pause for a death: alive are %v", s.Alive)
		}
		return nil
	})
}
