// Package testlog gives the code under test a logger that writes to the test's output.
package testlog

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
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

// Lines are those that a log has written and no test has taken yet. A log waits once there is no room for more.
type Lines chan string

// Write takes in a line, and returns no error.
func (l Lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// Unread is a pipe that is full and that nothing reads, for the standard error of a program: a write to it waits
// until the test ends. So does a program's log while the container runtime stands still.
func Unread(t testing.TB) *os.File {
	t.Helper()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	read, write := os.NewFile(uintptr(ends[0]), "read"), os.NewFile(uintptr(ends[1]), "unread")
	t.Cleanup(func() { _ = errors.Join(read.Close(), write.Close()) })
	for text := make([]byte, 4096); ; {
		if _, err := unix.Write(ends[1], text); errors.Is(err, unix.EAGAIN) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.SetNonblock(ends[1], false); err != nil {
		t.Fatal(err)
	}
	return write
}
