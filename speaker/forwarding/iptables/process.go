package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"fairlead.dev/fairlead/speaker/forwarding/iptables/wire"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
	"fairlead.dev/fairlead/speaker/outcome"
)

// How long a program may take. It is waited for as long as its work should take, and
// this much longer, so that one that hangs holds up nothing else, and then left to
// itself until it is killed: what it was doing may still be done.
const (
	defaultPatience = 10 * time.Second
	killAfter       = 20 // times the patience
)

// runner runs one program at a time.
type runner struct {
	patience time.Duration
	late     *process
}

// process is one run of a program.
type process struct {
	command        string
	began          time.Time     // to do what it is at
	done           chan struct{} // closed when it has ended
	err            error
	stdout, stderr bytes.Buffer // to be read when it has ended
}

// LateError says that a program takes longer than its work should. It is not run again
// before it has ended.
type LateError struct {
	Command string
	Since   time.Duration
}

// Reason is the cause, see outcome.ReasonOf.
func (e *LateError) Reason() string { return outcome.ReasonProgramHangs }

func (e *LateError) Error() string {
	return fmt.Sprintf("%s has not ended after %s: it hangs, or the node is overloaded; it is killed in the end, and then tried again",
		e.Command, e.Since.Round(time.Second))
}

// run runs a program until it ends, for as long as its work should take, and gives what it said.
func (r *runner) run(ctx context.Context, work time.Duration, stdin, program string, args ...string) ([]byte, error) {
	p, err := r.start(ctx, work+killAfter*r.patience, stdin, program, args...)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(r.patience + work)
	defer timer.Stop()
	select {
	case <-p.done:
		if p.err != nil {
			return nil, p.err
		}
		return p.stdout.Bytes(), nil
	case <-timer.C:
		r.late = p
		return nil, r.isLate()
	}
}

func (r *runner) isLate() error { return &LateError{r.late.command, time.Since(r.late.began)} }

// ended tells whether a program has ended that was given up before.
func (r *runner) ended() bool {
	if r.late == nil {
		return false
	}
	select {
	case <-r.late.done:
		return true
	default:
		return false
	}
}

// over is ended, once.
func (r *runner) over() bool {
	ended := r.ended()
	if ended {
		r.late = nil
	}
	return ended
}

// start starts a program unless there is one that is late, from the calling thread and so in
// its network namespace. It is killed when the context or its time has ended.
func (r *runner) start(ctx context.Context, limit time.Duration, stdin, program string, args ...string) (*process, error) {
	if r.late != nil {
		return nil, r.isLate()
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = 10 * time.Second // what it said may take a moment to come on a node that is overloaded
	// With all that it starts, lest a child of it go on holding the lock.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	p := &process{command: strings.Join(cmd.Args, " "), began: time.Now(), done: make(chan struct{})}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &p.stdout, &p.stderr
	if err := cmd.Start(); err != nil {
		cancel()
		if errors.Is(err, exec.ErrNotFound) {
			err = outcome.Caused(outcome.ReasonProgramMissing, fmt.Errorf("it is not in PATH: install iptables 1.8 or newer: %w", err))
		}
		return nil, fmt.Errorf("%s: %w", p.command, err)
	}
	go func() {
		defer cancel()
		defer close(p.done)
		if err := cmd.Wait(); err != nil {
			p.err = failed(p.command, errors.Join(err, ctx.Err()), p.stderr.String())
		}
	}()
	return p, nil
}

// failed says what a program said of its failure.
func failed(command string, err error, said string) error {
	said = strings.TrimSpace(said)
	if before, _, usage := strings.Cut(said, "\nTry `"); usage {
		said = before
	}
	if strings.Contains(said, "xtables lock") || strings.Contains(said, "Resource temporarily unavailable") {
		return fmt.Errorf("%s: %w", command, errLocked)
	}
	err = fmt.Errorf("%s: %w: %s", command, err, said)
	if lacksTables(said) {
		return outcome.Caused(outcome.ReasonFeatureMissing, err)
	}
	return err
}

// lacksTables finds the words in which programs tell that the kernel has not the tables of a
// family, or not the family.
func lacksTables(said string) bool {
	return slices.ContainsFunc([]string{
		"Table does not exist", "Protocol not available", "Address family not supported by protocol",
	}, func(words string) bool { return strings.Contains(said, words) })
}

// errLocked says that another program holds the lock of legacy iptables.
var errLocked = outcome.Caused(outcome.ReasonTablesLocked,
	errors.New("another program holds the lock of iptables, /run/xtables.lock, for more than a second; it is tried again as soon as it is free"))

// refused tells whether a program, or the kernel, did not take the rules that it was given, as against
// a program that could not be run or did not come to it.
func refused(err error) bool {
	var exit *exec.ExitError
	var kernel *nfnetlink.RefusedError
	return errors.Is(err, wire.ErrRule) || errors.As(err, &kernel) || errors.As(err, &exit) && exit.Exited() && !errors.Is(err, errLocked)
}
