package view_test

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/fairlead/internal/view"
)

func TestWhatIsRememberedOfANode(t *testing.T) {
	at, pods := []netip.Addr{netip.MustParseAddr("198.51.100.1")}, []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}
	last := &view.Node{Name: "a", UID: "1", Addresses: at, PodCIDRs: pods, Labels: map[string]string{"zone": "east"}}
	elsewhere := []netip.Addr{netip.MustParseAddr("198.51.100.9")}
	for name, tt := range map[string]struct {
		now, last *view.Node
		addresses []netip.Addr
		pods      []netip.Prefix
	}{
		"gone":                     {nil, last, at, pods},
		"made anew":                {&view.Node{Name: "a", UID: "2"}, last, at, pods},
		"its addresses are back":   {&view.Node{Name: "a", UID: "2", Addresses: elsewhere}, last, elsewhere, pods},
		"its podCIDRs are back":    {&view.Node{Name: "a", UID: "2", PodCIDRs: pods[:1]}, last, at, pods},
		"it says all":              {&view.Node{Name: "a", Addresses: elsewhere, PodCIDRs: pods}, last, elsewhere, pods},
		"nothing was known":        {&view.Node{Name: "a", Addresses: at}, nil, at, nil},
		"nothing was ever known":   {nil, nil, nil, nil},
		"it never had podCIDRs":    {&view.Node{Name: "a", Addresses: elsewhere}, &view.Node{Name: "a", Addresses: at}, elsewhere, nil},
		"what is said comes first": {&view.Node{Name: "a", Addresses: elsewhere, Labels: map[string]string{}}, last, elsewhere, pods},
	} {
		t.Run(name, func(t *testing.T) {
			before := *last
			c := view.Cluster{Nodes: map[string]*view.Node{}, LastOwn: tt.last}
			if tt.now != nil {
				c.Nodes["a"] = tt.now
			}
			own := c.OwnNode("a")
			if own == nil {
				if tt.now != nil || tt.last != nil {
					t.Fatal("nothing is known")
				}
				return
			}
			if !slices.Equal(own.Addresses, tt.addresses) || !slices.Equal(own.PodCIDRs, tt.pods) {
				t.Errorf("%v, pods in %v, want %v and %v", own.Addresses, own.PodCIDRs, tt.addresses, tt.pods)
			}
			if tt.now != nil && (own.UID != tt.now.UID || len(own.Labels) != len(tt.now.Labels)) {
				t.Errorf("%+v is not the Node that there is", own)
			}
			if !slices.Equal(last.Addresses, before.Addresses) || last.UID != before.UID {
				t.Errorf("what is remembered was written to: %+v", last)
			}
		})
	}
}
