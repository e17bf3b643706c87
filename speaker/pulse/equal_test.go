package pulse_test

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/equality"
	"fairlead.dev/fairlead/speaker/pulse"
)

// TestEqualForgetsNothing: no change is taken for none.
func TestEqualForgetsNothing(t *testing.T) {
	t.Parallel()
	equality.Sees(t, pulse.State.Equal)
	equality.Sees(t, pulse.Ownership.Equal)
}
