package links_test

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/equality"
	"fairlead.dev/fairlead/speaker/links"
)

// TestEqualForgetsNothing: no change is taken for none.
func TestEqualForgetsNothing(t *testing.T) {
	t.Parallel()
	equality.Sees(t, links.Link.Equal)
}
