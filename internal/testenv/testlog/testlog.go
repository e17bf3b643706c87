// Package testlog gives the code under test a logger that writes to the test's output.
package testlog

import (
	"io"
	"log/slog"
	"sync"
	"testing"
)

// New returns a logger for the test. What is logged after the test has ended is
// dropped: libraries leave goroutines behind that log as they die, and testing
// forbids them its output by then.
func New(t testing.TB) *slog.Logger { return AtLevel(t, slog.LevelInfo) }

// AtLevel is New for a test that wants more or fewer lines.
func AtLevel(t testing.TB, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(Output(t), &slog.HandlerOptions{Level: level}))
}

// Output is the test's output until the test ends, and nothing afterwards. It may
// be written to by many goroutines.
func Output(t testing.TB) io.Writer {
	o := &output{to: t.Output()}
	t.Cleanup(o.close)
	return o
}

type output struct {
	mu sync.Mutex
	to io.Writer
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.to.Write(text)
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.to = io.Discard
}
