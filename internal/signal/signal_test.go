package signal_test

import (
	"testing"

	"fairlead.dev/fairlead/internal/signal"
)

// TestSignalsAreOne: none is lost, and none waits.
func TestSignalsAreOne(t *testing.T) {
	t.Parallel()
	slot := make(chan struct{}, 1)
	signal.Send(slot)
	signal.Send(slot)
	<-slot
	select {
	case <-slot:
		t.Error("two signals are two")
	default:
	}
	signal.Send(slot)
	<-slot
}
