package program_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/program"
)

// TestRun: a fatal failure ends the function, all cleanups run, last first, and
// everything that was reported is in the error.
func TestRun(t *testing.T) {
	t.Parallel()
	var order []string
	err := program.Run(func(tb testing.TB) error {
		tb.Cleanup(func() { order = append(order, "first") })
		tb.Cleanup(func() { order = append(order, "second"); tb.Errorf("no %s", "end") })
		tb.Fatalf("no %s", "start")
		order = append(order, "never")
		return nil
	})
	if want := "no start\nno end"; err == nil || err.Error() != want {
		t.Errorf("Run gives %q, want %q", err, want)
	}
	if want := []string{"second", "first"}; !slices.Equal(order, want) {
		t.Errorf("done: %q, want %q", order, want)
	}
	if err := program.Run(func(testing.TB) error { return nil }); err != nil {
		t.Errorf("nothing reported, yet %v", err)
	}
	failed := false
	err = program.Run(func(tb testing.TB) error {
		tb.Cleanup(func() { failed = tb.Failed() })
		return os.ErrExist
	})
	if !errors.Is(err, os.ErrExist) || !failed {
		t.Errorf("an error of the function gives %v, and Failed %t", err, failed)
	}
}

// TestWhatIsLeftOfAFailedRun: environments ask a cleanup whether the run has failed, and where they may
// leave what tells why; the error says where that is.
func TestWhatIsLeftOfAFailedRun(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		var dir string
		err := program.Run(func(tb testing.TB) error {
			tb.Cleanup(func() {
				if tb.Failed() != fails {
					t.Errorf("Failed gives %t, want %t", tb.Failed(), fails)
				}
				if tb.Failed() {
					dir = tb.ArtifactDir()
				}
			})
			if fails {
				tb.Fatal("no end")
			}
			return nil
		})
		if !fails {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
		if err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("the error %v does not name %s", err, dir)
		}
	}
}
