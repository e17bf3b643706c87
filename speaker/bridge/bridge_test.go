package bridge

import (
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/speaker/pulse"
)

func TestWhatIsAnsweredForIsKnown(t *testing.T) {
	t.Parallel()
	a := netip.MustParseAddr("192.0.2.1")
	have := map[netip.Addr]pulse.Ownership{a: {}}
	for name, c := range map[string]struct {
		state          pulse.State
		there, keyless bool
		known          bool
		want           int
	}{
		"pulse is away":                         {pulse.State{}, false, true, false, 0},
		"pulse has just begun":                  {pulse.State{}, true, false, false, 0},
		"pulse has no key":                      {pulse.State{}, true, true, true, 0},
		"pulse answers":                         {pulse.State{Settled: true, Owned: have}, true, false, true, 1},
		"pulse has a key that the Secret hides": {pulse.State{Settled: true, Owned: have}, true, true, true, 1},
	} {
		if got := owned(c.state, c.there, c.keyless); (got != nil) != c.known || len(got) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

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
