package desired_test

import (
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/view"
)

// TestCommunityNames: what a name stands for is announced, and nothing is while a name of
// the advertisement stands for nothing.
func TestCommunityNames(t *testing.T) {
	far := view.LargeCommunity{Global: 64500, Local1: 1, Local2: 2}
	older := &view.Community{Name: "z", Created: time.Unix(1, 0), Values: map[string]view.CommunityValue{"vpn-only": {Standard: 7}, "far": {Large: &far}}}
	younger := &view.Community{Name: "a", Created: time.Unix(2, 0), Values: map[string]view.CommunityValue{"vpn-only": {Standard: 8}, "near": {Standard: 9}}}
	for name, test := range map[string]struct {
		names []string
		known []*view.Community
		want  []uint32
		large []view.LargeCommunity
		none  bool
	}{
		"known":                {[]string{"vpn-only", "far"}, []*view.Community{older}, []uint32{5, 7}, []view.LargeCommunity{far}, false},
		"the older counts":     {[]string{"vpn-only", "near"}, []*view.Community{older, younger}, []uint32{5, 7, 9}, nil, false},
		"the older is gone":    {[]string{"vpn-only", "near"}, []*view.Community{younger}, []uint32{5, 8, 9}, nil, false},
		"one is unknown":       {[]string{"vpn-only", "near"}, []*view.Community{older}, nil, nil, true},
		"nothing has any":      {[]string{"vpn-only"}, nil, nil, nil, true},
		"none is asked for":    {nil, []*view.Community{older}, []uint32{5}, nil, false},
		"a name and its value": {[]string{"five"}, []*view.Community{{Name: "x", Values: map[string]view.CommunityValue{"five": {Standard: 5}}}}, []uint32{5}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(service(), endpoint("10.0.0.1", "a"))
			c.BGPAdvertisements = map[string]*view.BGPAdvertisement{"bgp": {Name: "bgp", Communities: []uint32{5}, CommunityNames: test.names}}
			c.Communities = map[string]*view.Community{}
			for _, known := range test.known {
				c.Communities[known.Name] = known
			}
			node, _ := fresh(c, onNode("a"))
			for peer, session := range node.BGP {
				if (len(session.Routes) == 0) != test.none {
					t.Errorf("%d routes are announced to %s", len(session.Routes), peer)
				}
				for prefix, attrs := range session.Routes {
					if !slices.Equal(attrs.Communities, test.want) || !slices.Equal(attrs.LargeCommunities, test.large) {
						t.Errorf("%v is announced with %v and %v, want %v and %v", prefix, attrs.Communities, attrs.LargeCommunities, test.want, test.large)
					}
				}
			}
			if len(node.BGP) == 0 {
				t.Error("there is no session")
			}
		})
	}
}
