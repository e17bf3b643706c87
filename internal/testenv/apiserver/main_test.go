package apiserver_test

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// The ports that are free when they are chosen must be free when they are bound.
func TestMain(m *testing.M) { netlab.Isolated(m.Run) }
