package view_test

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/equality"
	"fairlead.dev/fairlead/internal/view"
)

// TestEqualForgetsNothing: no change is taken for none.
func TestEqualForgetsNothing(t *testing.T) {
	t.Parallel()
	equality.Sees(t, view.CommunityValue.Equal)
}
