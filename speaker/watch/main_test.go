package watch_test

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// The ports of the API server must be nobody else's.
func TestMain(m *testing.M) { netlab.Isolated(m.Run) }
