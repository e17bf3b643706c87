package blackbox

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Powerless does something without the right to change the network.
func Powerless(t testing.TB, do func()) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		t.Fatal(err)
	}
	less := has
	less[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&header, &less[0]); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Capset(&header, &has[0]); err != nil {
			t.Fatal(err)
		}
	}()
	do()
}
