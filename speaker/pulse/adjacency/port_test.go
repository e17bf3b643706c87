package adjacency

import (
	"net/netip"
	"testing"
	"time"
)

// TestWhichRouter: the first that is heard stays while it goes on advertising itself, and
// gives way when it has been silent for some of its intervals.
func TestWhichRouter(t *testing.T) {
	t.Parallel()
	one, other := netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fe80::2")
	began := time.Now()
	var h heard
	for i, c := range []struct {
		after time.Duration
		from  netip.Addr
		want  netip.Addr
	}{
		{0, netip.MustParseAddr("2001:db8::1"), netip.Addr{}}, // no router sends from there
		{0, one, one},
		{5 * time.Second, other, one},
		{20 * time.Second, one, one},
		{45 * time.Second, other, one},
		{50 * time.Second, other, other},
		{51 * time.Second, one, other},
		{time.Hour, other, other},
	} {
		if h.take(c.from, began.Add(c.after)); h.router != c.want {
			t.Errorf("%d: after %v from %v the router is %v, want %v", i, c.after, c.from, h.router, c.want)
		}
	}
}
