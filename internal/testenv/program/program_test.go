package program_test

import (
	"slices"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/program"
)

// TestRun: a fatal failure ends the function, all cleanups run, last first, and
// everything that was reported is in the error.
func TestRun(t *testing.T) {
	t.Parallel()
	var order []string
	err := program.Run(func(tb testing.TB) {
		tb.Cleanup(func() { order = append(order, "first") })
		tb.Cleanup(func() { order = append(order, "second"); tb.Errorf("no %s", "end") })
		tb.Fatalf("no %s", "start")
		order = append(order, "never")
	})
	if want := "no start\nno end"; err == nil || err.Error() != want {
		t.Errorf("Run gives %q, want %q", err, want)
	}
	if want := []string{"second", "first"}; !slices.Equal(order, want) {
		t.Errorf("done: %q, want %q", order, want)
	}
	if err := program.Run(func(testing.TB) {}); err != nil {
		t.Errorf("nothing reported, yet %v", err)
	}
}
