package lab

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestALongStepIsToldOf: again and again while it goes on, and not afterwards.
func TestALongStepIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		done := newTeller(&out).every(tellEvery, "kubelet")
		time.Sleep(2*tellEvery + time.Second)
		done()
		time.Sleep(5 * tellEvery)
		if want := "  10.0s  building kubelet …\n  20.0s  building kubelet …\n"; out.String() != want {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
	})
}
