package problem_test

import (
	"slices"
	"strconv"
	"testing"

	"fairlead.dev/fairlead/internal/problem"
)

// TestList: no more is listed than one would read.
func TestList(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{
		0: "", 1: "0", 3: "0, 1, 2", 8: "0, 1, 2, 3, 4, 5, 6, 7", 9: "0, 1, 2, 3, 4, 5, 6, 7 and 1 more", 100: "0, 1, 2, 3, 4, 5, 6, 7 and 92 more",
	} {
		var things []string
		for i := range n {
			things = append(things, strconv.Itoa(i))
		}
		before := slices.Clone(things)
		if got := problem.List(things, ", "); got != want || !slices.Equal(things, before) {
			t.Errorf("%d things are listed as %q, want %q", n, got, want)
		}
	}
}

// TestAdvice: advice is told apart from what keeps an object from what it needs.
func TestAdvice(t *testing.T) {
	t.Parallel()
	object := problem.Object{Kind: "Service", Namespace: "shop", Name: "web"}
	for _, p := range []problem.Problem{problem.New(object, "Reason", "%d is odd", 7), problem.Advice(object, "Reason", "%d is odd", 7)} {
		if want := "Service/shop/web: Reason: 7 is odd"; p.String() != want {
			t.Errorf("%q is told, want %q", p, want)
		}
	}
	both := []problem.Problem{problem.Advice(object, "A", ""), problem.New(object, "B", "")}
	if problem.Sort(both); both[0].Reason != "B" {
		t.Errorf("advice comes first: %v", both)
	}
	if problem.New(object, "Reason", "").Advisory || !problem.Advice(object, "Reason", "").Advisory {
		t.Error("advice and other problems are one")
	}
}
