package outcome_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

func TestRefusedFindsEveryPort(t *testing.T) {
	key := func(name string) desired.PortKey {
		return desired.PortKey{Service: view.Ref{Namespace: "shop", Name: name}}
	}
	refusal := func(name string, why ...error) error {
		return &outcome.RefusedError{Key: key(name), Err: errors.Join(append(why, errors.New("no"))...)}
	}
	for _, err := range []error{nil, errors.New("the lock"), errors.Join(errors.New("a"), errors.New("b"))} {
		if got := outcome.Refused(err); len(got) != 0 {
			t.Errorf("%v: refused %v", err, got)
		}
	}
	err := fmt.Errorf("apply: %w", errors.Join(
		errors.New("the lock"),
		fmt.Errorf("IPv4: %w", errors.Join(refusal("a"), errors.Join(refusal("b", errors.New("why")), nil))),
		fmt.Errorf("IPv6: %w", refusal("c")),
	))
	want := map[desired.PortKey]bool{key("a"): true, key("b"): true, key("c"): true}
	if got := outcome.Refused(err); !maps.Equal(got, want) {
		t.Errorf("refused %v, want %v", got, want)
	}
}

// TestBehind holds which families the kernel has not followed in.
func TestBehind(t *testing.T) {
	four := desired.PortKey{Service: view.Ref{Namespace: "shop", Name: "web"}, Family: addr.IPv4}
	six := four
	six.Family = addr.IPv6
	refusal := &outcome.RefusedError{Key: four, Err: errors.New("no")}
	in := func(f addr.Family, settled bool, err error) error {
		return &outcome.FamilyError{Family: f, Settled: settled, Err: err}
	}
	failed, none := errors.New("the lock"), outcome.Caused(outcome.ReasonFamilyAbsent, errors.New("none"))
	for name, test := range map[string]struct {
		missing outcome.Missing
		err     error
		want    []addr.Family
	}{
		"nothing":                         {nil, nil, nil},
		"a port":                          {outcome.Missing{four: {}}, in(addr.IPv4, true, failed), []addr.Family{addr.IPv4}},
		"a port, and nobody knows why":    {outcome.Missing{six: {}}, failed, []addr.Family{addr.IPv6}},
		"a refused one":                   {outcome.Missing{four: {}}, in(addr.IPv4, true, refusal), nil},
		"a refused one and another":       {outcome.Missing{four: {}, six: {}}, in(addr.IPv4, true, refusal), []addr.Family{addr.IPv6}},
		"no port":                         {nil, in(addr.IPv6, false, failed), []addr.Family{addr.IPv6}},
		"a refused one, and no port":      {outcome.Missing{four: {}}, in(addr.IPv4, false, errors.Join(refusal, failed)), []addr.Family{addr.IPv4}},
		"something that concerns neither": {nil, errors.Join(in(addr.IPv4, true, failed), &outcome.SettingError{Err: failed}), nil},
		"one that the host has not": {
			outcome.Missing{four: {}, six: {}},
			fmt.Errorf("apply: %w", errors.Join(in(addr.IPv4, true, failed), in(addr.IPv6, false, errors.Join(none, failed)))),
			[]addr.Family{addr.IPv4},
		},
		"one of which the kernel lacks something": {
			outcome.Missing{six: {}}, in(addr.IPv6, false, outcome.Caused(outcome.ReasonFeatureMissing, failed)), []addr.Family{addr.IPv6},
		},
		"both": {
			outcome.Missing{four: {}}, errors.Join(in(addr.IPv4, true, failed), in(addr.IPv6, false, failed)), addr.Families(),
		},
	} {
		want := map[addr.Family]bool{}
		for _, f := range test.want {
			want[f] = true
		}
		if got := outcome.Behind(test.missing, test.err); !maps.Equal(got, want) {
			t.Errorf("%s: behind in %v, want %v", name, got, want)
		}
	}
}

// TestLackingCountsWhatIsWanted leaves out what is to go.
func TestLackingCountsWhatIsWanted(t *testing.T) {
	key := func(name string, f addr.Family) desired.PortKey { return desired.PortKey{Name: name, Family: f} }
	f := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{key("a", addr.IPv4): {}, key("b", addr.IPv4): {}, key("a", addr.IPv6): {}}}
	missing := outcome.Missing{key("a", addr.IPv4): {}, key("gone", addr.IPv4): {}, key("gone", addr.IPv6): {}}
	if got, want := missing.Of(f), map[addr.Family]int{addr.IPv4: 1}; !maps.Equal(got, want) {
		t.Errorf("%v are lacking, want %v", got, want)
	}
}

// TestFailing leaves out what a host has not got, and nothing else.
func TestFailing(t *testing.T) {
	failed := errors.New("the lock")
	absent := &outcome.FamilyError{Family: addr.IPv6, Err: errors.Join(outcome.Caused(outcome.ReasonFamilyAbsent, errors.New("none")), failed)}
	four := &outcome.FamilyError{Family: addr.IPv4, Err: failed}
	setting := &outcome.SettingError{Of: "room", Err: errors.New("read-only")}
	for name, test := range map[string]struct {
		err  error
		want []error
	}{
		"nothing":                 {nil, nil},
		"a family":                {four, []error{four}},
		"one that the host lacks": {absent, nil},
		"both":                    {errors.Join(four, absent), []error{four}},
		"joined twice":            {errors.Join(errors.Join(absent, nil), setting), []error{setting}},
		"nothing else":            {errors.Join(errors.Join(absent), nil), nil},
		"of layer 2":              {errors.Join(failed, absent), []error{failed}},
	} {
		got := outcome.Failing(test.err)
		if (got == nil) != (len(test.want) == 0) || errors.Is(got, absent) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		for _, want := range test.want {
			if !errors.Is(got, want) {
				t.Errorf("%s: %v, want %v in it", name, got, want)
			}
		}
	}
}
