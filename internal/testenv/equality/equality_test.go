package equality

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"
)

type thing struct {
	Name string
	At   time.Time
	Of   map[netip.Addr][]part
}

type part struct {
	Up   bool
	Size *uint32
}

// TestBlind: it names what a comparison forgets, and nothing of one that forgets nothing.
func TestBlind(t *testing.T) {
	t.Parallel()
	all := func(a, b thing) bool {
		return a.Name == b.Name && a.At.Equal(b.At) && maps.EqualFunc(a.Of, b.Of, func(a, b []part) bool {
			return a[0].Up == b[0].Up && *a[0].Size == *b[0].Size
		})
	}
	some := func(a, b thing) bool {
		return a.Name == b.Name && maps.EqualFunc(a.Of, b.Of, func(a, b []part) bool { return a[0].Up == b[0].Up })
	}
	if unseen := blind(all); len(unseen) > 0 {
		t.Errorf("of all, %q are not seen", unseen)
	}
	if unseen := blind(some); !slices.Equal(unseen, []string{".At", ".Of[][0].Size"}) {
		t.Errorf("of some, %q are not seen", unseen)
	}
	Sees(t, all)
}
