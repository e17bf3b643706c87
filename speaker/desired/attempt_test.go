package desired_test

import (
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestAttempt holds what an applier says after one: which changes were not made, and which are to be
// tried by themselves.
func TestAttempt(t *testing.T) {
	key := func(name string) desired.PortKey {
		return desired.PortKey{Service: view.Ref{Namespace: "shop", Name: name}, Family: addr.IPv4}
	}
	was, is := desired.Port{Port: 80}, desired.Port{Port: 81}
	cases := map[string]struct {
		change       desired.Change
		held         map[desired.PortKey]desired.Port
		sound, fails bool
	}{
		"made":            {desired.Change{From: &was, To: &is}, map[desired.PortKey]desired.Port{key("a"): is}, true, false},
		"not sound":       {desired.Change{From: &was, To: &is}, map[desired.PortKey]desired.Port{key("a"): is}, false, true},
		"still as it was": {desired.Change{From: &was, To: &is}, map[desired.PortKey]desired.Port{key("a"): was}, true, true},
		"not there":       {desired.Change{To: &is}, nil, true, true},
		"gone":            {desired.Change{From: &was}, nil, true, false},
		"not gone":        {desired.Change{From: &was}, map[desired.PortKey]desired.Port{key("a"): was}, true, true},
	}
	for name, c := range cases {
		c.change.Key = key("a")
		missing := desired.Missing{}
		missing.AddFailed([]desired.Change{c.change}, c.held, c.sound)
		if port, fails := missing[key("a")]; fails != c.fails || fails && !port.Equal(c.held[key("a")]) {
			t.Errorf("%s: missing %v, want it to be %t", name, missing, c.fails)
		}
	}

	refused := desired.Refusals{key("a"): is, key("b"): was, key("c"): is}
	fresh, again := refused.Part([]desired.Change{{Key: key("a"), To: &is}, {Key: key("b"), To: &is}, {Key: key("c"), From: &is}, {Key: key("d"), To: &is}})
	if len(again) != 1 || again[0].Key != key("a") || len(fresh) != 3 || len(refused) != 0 {
		t.Errorf("anew %v, again %v, still refused %v", fresh, again, refused)
	}
}
