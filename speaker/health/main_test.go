package health

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// The ports of these tests must be nobody else's.
func TestMain(m *testing.M) { netlab.Isolated(m.Run) }
