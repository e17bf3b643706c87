package kernelwatch

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: what is read quickly is read often, and what takes long takes no greater share of the time.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct{ takes, pause time.Duration }{
			{0, time.Second}, {time.Millisecond, time.Second}, {100 * time.Millisecond, 5 * time.Second},
		} {
			var p Pace
			if !p.Due() {
				t.Error("the first reading is not due")
			}
			began := time.Now()
			time.Sleep(test.takes)
			p.Read(began, time.Second, 50)
			time.Sleep(test.pause - time.Millisecond)
			if p.Due() {
				t.Errorf("a reading of %s is due again within %s", test.takes, test.pause)
			}
			if time.Sleep(time.Millisecond); !p.Due() {
				t.Errorf("a reading of %s is not due after %s", test.takes, test.pause)
			}
		}
	})
}
