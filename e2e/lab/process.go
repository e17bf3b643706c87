package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// processes keeps records of the lab's long-running processes in a directory,
// one file each, and their output beside it. A record has the pid and the time
// at which the process began, so that no other process is ever taken for it.
type processes struct {
	records, logs string
}

type process struct {
	name  string
	pid   int
	began string // in clock ticks since boot
}

type daemon struct {
	name       string
	command    []string
	env        []string // nil: this process's own
	namespaces uintptr  // flags of clone(2): new ones that it starts in
}

// start starts a process that outlives this one and the context, in the
// network namespace of the calling thread and with its output in a log file.
func (p processes) start(ctx context.Context, d daemon) (process, error) {
	name := d.name
	log, err := os.OpenFile(p.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return process{}, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), d.command[0], d.command[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = d.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: d.namespaces}
	if err := cmd.Start(); err != nil {
		return process{}, fmt.Errorf("start %s: %w", name, err)
	}
	began, _, err := processStat(cmd.Process.Pid)
	// Only reaps: how it ended is in its log, that it ended shows in its record.
	go func() { _ = cmd.Wait() }()
	if err != nil {
		return process{}, fmt.Errorf("start %s: it ended at once: %w\n%s", name, err, p.logTail(name))
	}
	started := process{name: name, pid: cmd.Process.Pid, began: began}
	if err := os.WriteFile(filepath.Join(p.records, name), started.record(), 0o644); err != nil {
		return process{}, errors.Join(err, cmd.Process.Kill())
	}
	return started, nil
}

// untilReady polls a condition that a process must bring about. It gives up
// with the end of the process's log when the process ends.
func (p processes) untilReady(ctx context.Context, proc process, ready func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := until(ctx, proc.name, func() error {
		if !proc.running() {
			cancel(errors.New("it ended"))
		}
		return ready()
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, p.logTail(proc.name))
	}
	return nil
}

// find reads a record; fs.ErrNotExist if there is none.
func (p processes) find(name string) (process, error) {
	text, err := os.ReadFile(filepath.Join(p.records, name))
	if err != nil {
		return process{}, err
	}
	found := process{name: name}
	if _, err := fmt.Sscan(string(text), &found.pid, &found.began); err != nil {
		return process{}, fmt.Errorf("record of process %s: %q: %w", name, text, err)
	}
	return found, nil
}

// names are those of all records that begin with one of the prefixes.
func (p processes) names(prefixes ...string) ([]string, error) {
	entries, err := os.ReadDir(p.records)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(e.Name(), prefix) }) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// stop sends each process the signal, waits for its end and removes its
// record. What does not end within five seconds is killed.
func (p processes) stop(ctx context.Context, signal syscall.Signal, names ...string) error {
	var all []process
	var errs []error
	for _, name := range names {
		found, err := p.find(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = found.signal(signal)
			all = append(all, found)
		}
		errs = append(errs, err)
	}
	for _, proc := range all {
		err := proc.waitOrKill(ctx, 5*time.Second)
		if err == nil {
			err = os.Remove(filepath.Join(p.records, proc.name))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (p processes) log(name string) string { return filepath.Join(p.logs, name+".log") }

// logTail is the end of a process's log, for error messages.
func (p processes) logTail(name string) string {
	text, err := os.ReadFile(p.log(name))
	if err != nil {
		return err.Error()
	}
	const most = 2000
	return fmt.Sprintf("end of %s:\n%s", p.log(name), text[max(0, len(text)-most):])
}

// record is what find reads.
func (p process) record() []byte { return fmt.Appendf(nil, "%d %s\n", p.pid, p.began) }

// running tells whether this very process still runs.
func (p process) running() bool {
	began, state, err := processStat(p.pid)
	return err == nil && began == p.began && state != "Z" && state != "X"
}

// signal signals this very process and its group, which is its own: a command
// that entered a node has nsenter as its parent. One that has ended is no error.
func (p process) signal(signal syscall.Signal) error {
	if !p.running() {
		return nil
	}
	if err := syscall.Kill(-p.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s (pid %d): %w", p.name, p.pid, err)
	}
	return nil
}

func (p process) waitOrKill(ctx context.Context, patience time.Duration) error {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if p.waitGone(patient) == nil {
		return nil
	}
	return errors.Join(p.signal(syscall.SIGKILL), p.waitGone(ctx))
}

func (p process) waitGone(ctx context.Context) error {
	return until(ctx, fmt.Sprintf("the end of %s (pid %d)", p.name, p.pid), func() error {
		if p.running() {
			return errors.New("it still runs")
		}
		return nil
	})
}

// processStat reads when a process began and its state.
func processStat(pid int) (began, state string, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", "", err
	}
	return parseStat(string(text))
}

// parseStat takes them from the text of /proc/PID/stat, see proc_pid_stat(5).
func parseStat(text string) (began, state string, err error) {
	// The second field is the command's name in brackets, which may hold both
	// spaces and brackets.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const stateField, beganField = 3, 22 // counted from 1
	if len(fields) <= beganField-stateField {
		return "", "", fmt.Errorf("process state %q is too short", text)
	}
	return fields[beganField-stateField], fields[0], nil
}

// until is [Until] with an error that says what was waited for.
func until(ctx context.Context, what string, condition func() error) error {
	if err := Until(ctx, condition); err != nil {
		return fmt.Errorf("gave up waiting for %s: %w", what, err)
	}
	return nil
}

// Until polls a condition until it gives no error. At the context's end the error has its cause
// and the condition's last error.
func Until(ctx context.Context, condition func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
