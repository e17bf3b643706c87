package statuswriter_test

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// A port that was free when the API server chose it must be free when it is bound.
func TestMain(m *testing.M) { netlab.Isolated(m.Run) }
