// Package machine describes the machine to the readers of a benchmark, and waits until it is
// idle.
package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Facts are the day, the processors, the memory, the kernel and the checkout. An error says that
// the kernel or git could not be asked.
func Facts(ctx context.Context) ([]string, error) {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, err
	}
	commit, err := Said(ctx, "git", "describe", "--tags", "--always", "--dirty")
	if err != nil {
		return nil, err
	}
	return []string{
		time.Now().UTC().Format(time.DateOnly),
		fmt.Sprintf("%d CPUs, %s; memory %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name"), field("/proc/meminfo", "MemTotal")),
		"Linux " + strings.TrimSpace(string(kernel)),
		"Fairlead " + commit,
	}, nil
}

// Said is what a command prints. An error names the command.
func Said(ctx context.Context, command ...string) (string, error) {
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// field reads the first line of that name from a file of lines "name: value".
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// Options are what every benchmark is told.
type Options struct {
	Command  string        // by which the report is made again
	Rounds   int           // how often everything is measured
	Patience time.Duration // for what is not done by then
	Settle   time.Duration // for which a measurement waits at most for the machine to become idle
	Out      string        // the file of the report; "": standard output
	Bin      string        // where the programs of the lab are
}

// Session is one run of a benchmark.
type Session struct {
	settle  time.Duration
	began   time.Time
	busiest float64
}

// Begin begins a Session, which waits no longer than settle for the machine to become idle.
func Begin(settle time.Duration) *Session { return &Session{settle: settle, began: time.Now()} }

// Say tells progress on standard error.
func (s *Session) Say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.0f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// Busiest is a fact: how busy the machine was when a measurement began, at the worst.
func (s *Session) Busiest() string {
	return fmt.Sprintf("when a measurement began, other processes used at most %.0f %% of the machine", 100*s.busiest)
}

// Write writes the report. An error is the file's.
func (o Options) Write(report string) error {
	if o.Out == "" {
		fmt.Print(report)
		return nil
	}
	return os.WriteFile(o.Out, []byte(report), 0o644)
}

// Rest waits for the machine to become idle.
func (s *Session) Rest(ctx context.Context) {
	const idle, window = 0.05, 500 * time.Millisecond
	var busy float64
	for began := time.Now(); ctx.Err() == nil; {
		worked, total := cpuTime()
		time.Sleep(window)
		workedNow, totalNow := cpuTime()
		busy = (workedNow - worked) / max(totalNow-total, 1)
		if busy < idle || time.Since(began) > s.settle {
			break
		}
	}
	s.busiest = max(s.busiest, busy)
}

// cpuTime is what all processors have worked and all time there was, see proc_stat(5).
func cpuTime() (worked, total float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:] {
		ticks, err := strconv.ParseFloat(field, 64)
		const idle, ioWait, steal = 3, 4, 7
		if err != nil || i > steal {
			break
		}
		total += ticks
		if i != idle && i != ioWait {
			worked += ticks
		}
	}
	return worked, total
}
