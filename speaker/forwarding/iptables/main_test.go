package iptables

import (
	"fmt"
	"os"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// TestMain keeps these tests and those of other packages, which run at the same time,
// from waiting for one lock of iptables.
func TestMain(m *testing.M) {
	if err := netlab.LocksForEachHost(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
