package main

import "testing"

func TestParseFailoverRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-contestants", "cilium"}, {"-only", "("}, {"-rounds", "0"}, {"-window", "1ms"}, {"-many", "-1"}, {"-patience", "0s"}} {
		if _, err := parseFailover(append([]string{"bgp"}, args...)); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	if err := run(t.Context(), []string{"ospf"}); err == nil {
		t.Error("ospf is taken")
	}
	o, err := parseFailover([]string{"layer2", "-rounds", "3"})
	if want := "go run ./e2e/bench layer2 -rounds 3"; err != nil || o.Command != want || o.Rounds != 3 {
		t.Errorf("%q, %v, want %q", o.Command, err, want)
	}
}

func TestParseAllocation(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-ours", "10,1"}, {"-theirs", "x"}, {"-ours", "0"}, {"-rounds", "0"}, {"-singles", "0"}, {"-bin", ""}} {
		if o, err := parseAllocation(append([]string{"allocation", "-bin", "bin"}, args...)); err == nil {
			t.Errorf("%q give %+v", args, o)
		}
	}
	if o, err := parseAllocation([]string{"allocation", "-bin", "bin", "-theirs", "", "-ours", "1,2"}); err != nil || len(o.Theirs) != 0 || len(o.Ours) != 2 {
		t.Errorf("%+v, %v", o, err)
	}
}
