package view_test

import (
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/internal/view"
)

// TestARouterStaysWithItsInterface: who begins to listen anew has heard nobody, which is no
// news; an interface that goes, or has another address, is.
func TestARouterStaysWithItsInterface(t *testing.T) {
	t.Parallel()
	local, other := netip.MustParseAddr("fe80::2%eth1"), netip.MustParseAddr("fe80::3%eth1")
	router, successor := netip.MustParseAddr("fe80::1%eth1"), netip.MustParseAddr("fe80::9%eth1")
	known := view.Adjacency{Local: local, Router: router}
	for name, c := range map[string]struct{ before, word, want view.Adjacency }{
		"the first word":              {view.Adjacency{}, known, known},
		"nobody heard yet":            {known, view.Adjacency{Local: local}, known},
		"another router":              {known, view.Adjacency{Local: local, Router: successor}, view.Adjacency{Local: local, Router: successor}},
		"another address of the node": {known, view.Adjacency{Local: other}, view.Adjacency{Local: other}},
		"no interface":                {known, view.Adjacency{Trouble: "gone"}, view.Adjacency{Trouble: "gone"}},
		"an interface that came back": {view.Adjacency{Trouble: "gone"}, view.Adjacency{Local: local}, view.Adjacency{Local: local}},
	} {
		if got := c.before.After(c.word); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
