package owner

import (
	"net/netip"
	"slices"
	"testing"
)

// A line of the log has room for a few addresses, however many move.
func TestALineNamesAFewAddresses(t *testing.T) {
	var all []netip.Addr
	for i := range 25 {
		all = append(all, netip.AddrFrom4([4]byte{192, 0, 2, byte(24 - i)}))
	}
	if got := some(all[:2]); !slices.Equal(got, []string{"192.0.2.23", "192.0.2.24"}) {
		t.Errorf("of two: %q", got)
	}
	got := some(all)
	if len(got) != 21 || got[0] != "192.0.2.0" || got[19] != "192.0.2.19" || got[20] != "and 5 more" {
		t.Errorf("of 25: %q", got)
	}
	if got := some(nil); len(got) != 0 {
		t.Errorf("of none: %q", got)
	}
}
