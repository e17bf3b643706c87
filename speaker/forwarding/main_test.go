//go:build !hardened

package forwarding

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// The lock of iptables must be nobody else's: other packages are tested at the same time.
func TestMain(m *testing.M) { netlab.LocksApart(m.Run) }
