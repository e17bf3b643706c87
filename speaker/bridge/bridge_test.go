package bridge

import (
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/speaker/pulse/api"
)

func TestWhatIsAnsweredForIsKnown(t *testing.T) {
	t.Parallel()
	a := netip.MustParseAddr("192.0.2.1")
	have := map[netip.Addr]api.Ownership{a: {}}
	for name, c := range map[string]struct {
		state          api.State
		there, keyless bool
		known          bool
		want           int
	}{
		"pulse is away":                         {api.State{}, false, true, false, 0},
		"pulse has just begun":                  {api.State{}, true, false, false, 0},
		"pulse has no key":                      {api.State{}, true, true, true, 0},
		"pulse answers":                         {api.State{Settled: true, Owned: have}, true, false, true, 1},
		"pulse has a key that the Secret hides": {api.State{Settled: true, Owned: have}, true, true, true, 1},
	} {
		if got := owned(c.state, c.there, c.keyless); (got != nil) != c.known || len(got) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWhoMayNotBeHeard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state api.State
		there bool
		want  bool
	}{
		"pulse is away":          {api.State{}, false, true},
		"pulse has just begun":   {api.State{Alive: []string{"a"}}, true, true},
		"a node of its own":      {api.State{Settled: true, Alive: []string{"a"}}, true, false},
		"all are heard":          {api.State{Settled: true, Alive: []string{"a", "b"}}, true, false},
		"one of three is silent": {api.State{Settled: true, Alive: []string{"a", "b"}, Silent: []string{"c"}}, true, false},
		"one of two is silent":   {api.State{Settled: true, Alive: []string{"a"}, Silent: []string{"b"}}, true, true},
		"two of three are":       {api.State{Settled: true, Alive: []string{"a"}, Silent: []string{"b", "c"}}, true, true},
	} {
		if got := unheard(c.state, c.there); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
