package api_test

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/equality"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// TestEqualForgetsNothing: no change is taken for none.
func TestEqualForgetsNothing(t *testing.T) {
	t.Parallel()
	equality.Sees(t, api.State.Equal)
	equality.Sees(t, api.Ownership.Equal)
	equality.Sees(t, api.Contest.Equal)
	equality.Sees(t, api.Doubt.Equal)
}
