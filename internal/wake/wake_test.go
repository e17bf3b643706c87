package wake_test

import (
	"testing"

	"fairlead.dev/fairlead/internal/wake"
)

// TestReasonsAreOne: none is lost, and none waits.
func TestReasonsAreOne(t *testing.T) {
	t.Parallel()
	slot := make(chan struct{}, 1)
	wake.Fill(slot)
	wake.Fill(slot)
	<-slot
	select {
	case <-slot:
		t.Error("two reasons are two")
	default:
	}
	wake.Fill(slot)
	<-slot
}
