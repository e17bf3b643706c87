package product

import (
	"context"
	"errors"
	"testing"

	"fairlead.dev/fairlead/e2e/lab"
)

// EndWith has the lab, of which Up or Start returned err, end with a test: it is taken down, and what there is to know of it is kept
// if the test has failed. Where the machine cannot have a lab, the test is skipped, naming what is missing.
func EndWith(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrMachine) {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("down: %v", err)
		}
	})
	lab.Keep(t)
}
