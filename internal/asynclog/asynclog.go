// Package asynclog writes the log of a program without a wait for its reader. The container runtime, which reads
// it, stands still while its disk hangs. A write that waited would stop all that logs: hellos, and other nodes take
// the addresses of a node that goes on to answer for them; the pass of the agent, and the node forwards to endpoints
// that are gone; that of a controller, which goes on to renew its lease.
package asynclog

import (
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/signal"
)

const (
	// Within is how long the end of a program waits for its log to be read.
	Within = 500 * time.Millisecond
	// room is for a few thousand lines that wait to be read, in bytes.
	room = 1 << 20
)

// Writer takes lines and writes them in their order. It never waits: lines for which there is no room
// are dropped, and counted where they would be.
type Writer struct {
	to   io.Writer
	room int
	lost func(to io.Writer, lines uint64)

	more    chan struct{} // one slot: there is something to write, or it is closed
	written chan struct{} // closed once all is written after Close

	mu      sync.Mutex // guards what follows
	waiting [][]byte
	size    int    // of the lines that wait, in bytes
	dropped uint64 // since the last of them
	total   uint64 // dropped since the beginning
	closed  bool
}

// Start returns the writer of a program's log, which tells in the log itself how many lines of it were lost.
func Start(to io.Writer) *Writer { return New(to, room, unread) }

// unread tells of lines that were dropped.
func unread(to io.Writer, lines uint64) {
	slog.New(slog.NewJSONHandler(to, nil)).Warn("the log was not read in time, and lines of it were dropped; look at the disk of the node and at its container runtime", "lines", lines)
}

// Lost returns the metric of the lines that were dropped.
func (w *Writer) Lost() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "fairlead_log_lines_lost_total",
		Help: "Lines of the log that were dropped, since the log was not read in time.",
	}, func() float64 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return float64(w.total)
	})
}

// New returns a writer that writes on to another one, in a goroutine of its own until Close. Lines of room
// bytes may wait. Where some were dropped, lost writes how many.
func New(to io.Writer, room int, lost func(to io.Writer, lines uint64)) *Writer {
	w := &Writer{to: to, room: room, lost: lost, more: make(chan struct{}, 1), written: make(chan struct{})}
	go w.run()
	return w
}

// Write takes one line. Its error is always nil.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return len(line), nil
	case w.size+len(line) > w.room:
		w.dropped++
		w.total++
		return len(line), nil
	}
	w.waiting = append(w.waiting, append([]byte(nil), line...))
	w.size += len(line)
	signal.Send(w.more)
	return len(line), nil
}

// Close returns when the lines that wait are written, or after that long: their reader may stand still for ever.
// Lines that are written after it are ignored.
func (w *Writer) Close(within time.Duration) {
	w.mu.Lock()
	w.closed = true
	signal.Send(w.more)
	w.mu.Unlock()
	select {
	case <-w.written:
	case <-time.After(within):
	}
}

// run writes until all is written after Close. What the other writer refuses is lost.
func (w *Writer) run() {
	defer close(w.written)
	for range w.more {
		lines, dropped, last := w.take()
		for _, line := range lines {
			_, _ = w.to.Write(line)
		}
		if dropped > 0 {
			w.lost(w.to, dropped)
		}
		if last {
			return
		}
	}
}

// take empties what waits.
func (w *Writer) take() (lines [][]byte, dropped uint64, last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines, dropped = w.waiting, w.dropped
	w.waiting, w.size, w.dropped = nil, 0, 0
	return lines, dropped, w.closed
}

// Stderr returns standard error for a Writer. What is written to a pipe besides it, by LastWords and by the runtime
// when a program panics, does not wait for the reader any more: what finds no room is lost, and the program ends.
func Stderr() *os.File {
	var stat unix.Stat_t
	if err := unix.Fstat(unix.Stderr, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return os.Stderr // a file, or a terminal, which is its shell's as well
	}
	own, err := unix.FcntlInt(uintptr(unix.Stderr), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.Stderr
	}
	if err := unix.SetNonblock(own, true); err != nil {
		_ = unix.Close(own)
		return os.Stderr
	}
	return os.NewFile(uintptr(own), "stderr") // its writes wait in Go's poller
}

// LastWords writes a line to standard error, once.
func LastWords(line string) { _, _ = unix.Write(unix.Stderr, []byte(line+"\n")) }
