package forwarding

import (
	"os"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// The lock of iptables must be nobody else's: other packages are tested at the same time.
func TestMain(m *testing.M) {
	if mode := os.Getenv(confined); mode != "" {
		os.Exit(writeConfined(Mode(mode)))
	}
	netlab.LocksApart(m.Run)
}
