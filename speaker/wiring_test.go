package main

import (
	"testing"

	"fairlead.dev/fairlead/speaker/pulse"
)

func TestWhoMayNotBeHeard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state pulse.State
		there bool
		want  bool
	}{
		"pulse is away":          {pulse.State{}, false, true},
		"pulse has just begun":   {pulse.State{Alive: []string{"a"}}, true, true},
		"a node of its own":      {pulse.State{Settled: true, Alive: []string{"a"}}, true, false},
		"all are heard":          {pulse.State{Settled: true, Alive: []string{"a", "b"}}, true, false},
		"one of three is silent": {pulse.State{Settled: true, Alive: []string{"a", "b"}, Silent: []string{"c"}}, true, false},
		"one of two is silent":   {pulse.State{Settled: true, Alive: []string{"a"}, Silent: []string{"b"}}, true, true},
		"two of three are":       {pulse.State{Settled: true, Alive: []string{"a"}, Silent: []string{"b", "c"}}, true, true},
	} {
		if got := unheard(c.state, c.there); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
