package bgp

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/testenv/testlog"
)

func TestMain(m *testing.M) { netlab.Isolated(func() int { return run(m) }) }

func run(m *testing.M) int {
	if os.Getenv(obedient) != "" {
		return obey(os.Stdin, os.Stdout)
	}
	// They wait for routers and timers more than they need a processor.
	if err := flag.Set("test.parallel", "10"); err != nil { // go test -parallel, which is read later, is stronger
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// quiet is the logger of tests; go test -v with FAIRLEAD_TEST_LOG=debug shows all.
func quiet(t testing.TB) *slog.Logger {
	level := slog.LevelWarn
	if os.Getenv("FAIRLEAD_TEST_LOG") == "debug" {
		level = slog.LevelDebug
	}
	return testlog.AtLevel(t, level)
}
