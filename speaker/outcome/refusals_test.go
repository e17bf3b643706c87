package outcome_test

import (
	"errors"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
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
		missing := outcome.Missing{}
		missing.Add(outcome.Attempt{Family: addr.IPv4, Changes: []desired.Change{c.change}, Held: c.held, Known: true, Sound: c.sound})
		if port, fails := missing[key("a")]; fails != c.fails || fails && !port.Equal(c.held[key("a")]) {
			t.Errorf("%s: missing %v, want it to be %t", name, missing, c.fails)
		}
	}
}

// TestAttemptOnWhatNobodyKnows has all ports of the family missing that are wanted, and as they are held
// those that are not.
func TestAttemptOnWhatNobodyKnows(t *testing.T) {
	key := func(name string, f addr.Family) desired.PortKey { return desired.PortKey{Name: name, Family: f} }
	stays, other, gone := key("a", addr.IPv4), key("a", addr.IPv6), key("b", addr.IPv4)
	is := desired.Port{Port: 80}
	missing := outcome.Missing{}
	missing.Add(outcome.Attempt{
		Family: addr.IPv4, Want: desired.Forwarding{Ports: map[desired.PortKey]desired.Port{stays: is, other: is}},
		Held: map[desired.PortKey]desired.Port{stays: is, gone: is}, Sound: true,
	})
	if len(missing) != 2 || !missing[stays].Equal(desired.Port{}) || !missing[gone].Equal(is) {
		t.Errorf("missing %v, want the one that stays, and the one that goes as it was", missing)
	}
}

// TestRefusals holds that what is refused is tried by itself and, while others change, seldom; and
// that it is told of all the while.
func TestRefusals(t *testing.T) {
	key := func(name string) desired.PortKey {
		return desired.PortKey{Service: view.Ref{Namespace: "shop", Name: name}, Family: addr.IPv4}
	}
	was, is := desired.Port{Port: 80}, desired.Port{Port: 81}
	now := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	reason := errors.New("no such match")
	var r outcome.Refusals
	if refused := outcome.Refused(r.Add(key("a"), is, reason)); !refused[key("a")] {
		t.Errorf("said to be refused: %v", refused)
	}
	_, _, _ = r.Add(key("b"), was, reason), r.Add(key("c"), is, reason), r.Add(key("e"), is, reason)
	a, others := desired.Change{Key: key("a"), To: &is}, []desired.Change{{Key: key("b"), To: &is}, {Key: key("c"), From: &is}, {Key: key("d"), To: &is}}
	for _, step := range []struct {
		name         string
		after        time.Duration
		changes      []desired.Change
		fresh, again int
		told         bool
	}{
		{"tried the first time", 0, append(others[:3:3], a), 3, 1, false},
		{"others change", time.Second, append(others[:1:1], a), 1, 0, true},
		{"others change still", 8 * time.Second, append(others[:1:1], a), 1, 0, true},
		{"for a while", time.Second, append(others[:1:1], a), 1, 1, false},
		{"nothing else changes", 0, []desired.Change{a}, 0, 1, false},
		{"it is another port now", 0, []desired.Change{{Key: key("a"), To: &was}}, 1, 0, false},
	} {
		now = now.Add(step.after)
		fresh, again, told := r.Part(step.changes, now)
		if len(fresh) != step.fresh || len(again) != step.again || outcome.Refused(told)[key("a")] != step.told || errors.Is(told, reason) != step.told {
			t.Errorf("%s: fresh %v, again %v, told %v", step.name, fresh, again, told)
		}
		for _, c := range again {
			_ = r.Add(c.Key, *c.To, reason)
		}
	}
}
