package apiservers

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// The API servers of a test have addresses of their own.
func TestMain(m *testing.M) { netlab.Isolated(m.Run) }
