package view_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/internal/view"
)

func TestWhoIsBelievedToBeDead(t *testing.T) {
	nodes := map[string]*view.Node{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		nodes[name] = &view.Node{Name: name, Ready: true}
	}
	nodes["off"] = &view.Node{Name: "off"}
	nodes["off too"] = &view.Node{Name: "off too"}
	for name, test := range map[string]struct{ alive, silent, want []string }{
		"nobody is silent":                       {alive: []string{"a", "b", "c"}},
		"one of three":                           {[]string{"a", "b"}, []string{"c"}, []string{"c"}},
		"one of two":                             {[]string{"a"}, []string{"b"}, []string{"b"}},
		"who is cut off believes nothing":        {[]string{"a"}, []string{"b", "c"}, nil},
		"the smaller part believes nothing":      {[]string{"a", "b"}, []string{"c", "d", "e"}, nil},
		"the larger part does":                   {[]string{"c", "d", "e"}, []string{"a", "b"}, []string{"a", "b"}},
		"nodes that are off have no vote":        {[]string{"a"}, []string{"b", "off", "off too"}, []string{"b", "off", "off too"}},
		"a node that is no more is none of them": {[]string{"a", "b"}, []string{"gone"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := &view.Cluster{Nodes: nodes}
			differ := c.Fall(view.RollCall{Alive: test.alive, Silent: test.silent})
			for _, got := range []map[string]struct{}{differ, c.Fallen} {
				if diff := cmp.Diff(test.want, slices.Sorted(maps.Keys(got))); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if again := c.Fall(view.RollCall{Alive: test.alive, Silent: test.silent}); len(again) > 0 {
				t.Errorf("the same roll call again changes %v", again)
			}
			if back := c.Fall(view.RollCall{Alive: []string{"a"}}); len(back) != len(test.want) || len(c.Fallen) > 0 {
				t.Errorf("when all are back, %v change and %v are down", back, c.Fallen)
			}
		})
	}
}
