package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/nfnetlink"
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
	command string
	began   time.Time
	through chan struct{} // closed when it says that it has committed
	done    chan struct{} // closed when it has ended
	stdout  []byte
	err     error
}

// output is what a program says.
type output struct {
	all     bytes.Buffer
	through chan struct{} // closed at the first word that it has committed
	told    bool
}

// Write implements io.Writer.
func (o *output) Write(said []byte) (int, error) {
	n, err := o.all.Write(said)
	if !o.told && bytes.HasSuffix(o.all.Bytes(), []byte(committed)) {
		o.told = true
		close(o.through)
	}
	return n, err
}

// LateError says that a program takes longer than its work should. It is not run again
// before it has ended.
type LateError struct {
	Command string
	Since   time.Duration
}

// Reason is the cause, see desired.ReasonOf.
func (e *LateError) Reason() string { return desired.ReasonProgramHangs }

func (e *LateError) Error() string {
	return fmt.Sprintf("%s has not ended after %s: it hangs, or the node is overloaded; it is killed in the end, and then tried again",
		e.Command, e.Since.Round(time.Second))
}

// run runs a program until it ends or has committed, for as long as its work should take.
func (r *runner) run(ctx context.Context, work time.Duration, stdin, program string, args ...string) ([]byte, error) {
	if r.late != nil {
		return nil, &LateError{r.late.command, time.Since(r.late.began)}
	}
	p, err := start(ctx, work+killAfter*r.patience, stdin, program, args...)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(r.patience + work)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.stdout, p.err
	case <-p.through:
		return nil, nil
	case <-timer.C:
		r.late = p
		return nil, &LateError{p.command, time.Since(p.began)}
	}
}

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

// start starts a program, from the calling thread and so in its network namespace.
func start(ctx context.Context, limit time.Duration, stdin, program string, args ...string) (*process, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = 10 * time.Second // what it said may take a moment to come on a node that is overloaded
	// With all that it starts, lest a child of it go on holding the lock.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stderr bytes.Buffer
	stdout := output{through: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	p := &process{command: strings.Join(cmd.Args, " "), began: time.Now(), through: stdout.through, done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		cancel()
		if errors.Is(err, exec.ErrNotFound) {
			err = desired.Caused(desired.ReasonProgramMissing, fmt.Errorf("it is not in PATH: install iptables 1.8 or newer: %w", err))
		}
		return nil, fmt.Errorf("%s: %w", p.command, err)
	}
	go feed(input, stdin)
	go func() {
		defer cancel()
		defer close(p.done)
		err := cmd.Wait()
		p.stdout = stdout.all.Bytes()
		if err != nil {
			p.err = failed(p.command, errors.Join(err, ctx.Err()), stderr.String())
		}
	}()
	return p, nil
}

// feed gives a program its input. What fails the program will tell. One that says when it
// has committed is kept from ending, and so from closing its socket, for a while.
func feed(into io.WriteCloser, input string) {
	_, _ = io.WriteString(into, input)
	if strings.HasSuffix(input, committed) {
		time.Sleep(nfnetlink.Lingering)
	}
	_ = into.Close()
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
	return fmt.Errorf("%s: %w: %s", command, err, said)
}

// errLocked says that somebody else keeps legacy iptables to himself.
var errLocked = desired.Caused(desired.ReasonTablesLocked,
	errors.New("another program holds the lock of iptables, /run/xtables.lock, for more than a second; it is tried again as soon as it is free"))

// refused tells whether a program ran and did not like what it was given, as against
// one that could not be run or did not come to it.
func refused(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.Exited() && !errors.Is(err, errLocked)
}
