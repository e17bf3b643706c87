package desired_test

import (
	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// label is a selector of one label.
type label struct{ key, value string }

func (l label) Matches(labels map[string]string) bool { return labels[l.key] == l.value }

func has(key, value string) view.Selector { return label{key, value} }

func ranges(texts ...string) []netipx.IPRange {
	var list []netipx.IPRange
	for _, text := range texts {
		r, err := addr.ParseRange(text)
		if err != nil {
			panic(err)
		}
		list = append(list, r)
	}
	return list
}

// fresh decides from scratch.
func fresh(c *view.Cluster, o desired.Options) (desired.Node, []problem.Problem) {
	return desired.NewEngine(o).Decide(c)
}
