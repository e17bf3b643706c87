package memlimit_test

import (
	"math"
	"runtime/debug"
	"testing"

	"fairlead.dev/fairlead/internal/memlimit"
)

func TestApply(t *testing.T) {
	for name, tt := range map[string]struct {
		container, own string
		want           int64
		fails          bool
	}{
		"no limit":         {"", "", math.MaxInt64, false},
		"a limit":          {"1073741824", "", 805306368, false},
		"one of Go's":      {"1073741824", "512MiB", math.MaxInt64, false},
		"no number":        {"1Gi", "", math.MaxInt64, true},
		"nothing is there": {"0", "", math.MaxInt64, true},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		t.Setenv(memlimit.Variable, tt.container)
		t.Setenv("GOMEMLIMIT", tt.own)
		err := memlimit.Apply()
		if got := debug.SetMemoryLimit(-1); got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: limit %d, error %v; want %d", name, got, err, tt.want)
		}
	}
	debug.SetMemoryLimit(math.MaxInt64)
}
