package hello

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// A port that was free when it was chosen must be free when it is bound.
func TestMain(m *testing.M) { netlab.Isolated(m.Run) }
