package desired_test

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/equality"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestEqualForgetsNothing: no change is taken for none.
func TestEqualForgetsNothing(t *testing.T) {
	t.Parallel()
	equality.Sees(t, desired.Port.Equal)
	equality.Sees(t, desired.RouteAttrs.Equal)
}
