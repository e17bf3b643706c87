package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"fairlead.dev/fairlead/speaker/forwarding/nfnetlink"
	"fairlead.dev/fairlead/speaker/outcome"
)

// How long a program may take. It is waited for as long as its work should take, and
// this much longer, so that one that hangs holds up nothing else, and then left to
// itself until it is killed: what it was doing may still be done.
const (
	defaultPatience = 10 * time.Second
	killAfter       = 20 // times the patience
)

// A program that has committed a script stays for the next one for so long, unless the script was
// longer than this: to start one takes ten times as long as what it then does for a Service. The
// memory that a long script took it would keep.
const (
	residence = time.Minute
	short     = 64 << 10
)

// runner runs one program at a time.
type runner struct {
	patience time.Duration
	late     *process
	resident *process // has done what it was told, and stays for more
	streams  bool     // programs are known to begin before they have read all
}

// process is one run of a program.
type process struct {
	command        string
	began          time.Time // to do what it is at
	kill           context.CancelCauseFunc
	done           chan struct{} // closed when it has ended
	err            error
	stdin          io.WriteCloser
	stdout, stderr output
	fed            chan struct{} // closed when it was given all of a script
	leave          *time.Timer   // until stdin is closed, by which it ends
}

// output is what a program says.
type output struct {
	mu      sync.Mutex
	all     bytes.Buffer
	through chan struct{} // nil: nobody waits for the word that it has committed
}

// Write implements io.Writer.
func (o *output) Write(said []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.all.Write(said)
	if o.through != nil && bytes.HasSuffix(o.all.Bytes(), []byte(committed)) {
		close(o.through)
		o.through = nil
	}
	return n, err
}

// afresh forgets what was said, and gives what is closed at the word that all is committed.
func (o *output) afresh() <-chan struct{} {
	through := make(chan struct{})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all.Reset()
	o.through = through
	return through
}

// bytes are all that was said, for when nothing more is.
func (o *output) bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Bytes()
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
	p, err := r.start(ctx, program, args...)
	if err != nil {
		return nil, err
	}
	go func() {
		_, _ = io.WriteString(p.stdin, stdin) // what fails it will tell
		_ = p.stdin.Close()
	}()
	if err := r.await(ctx, p, nil, work); err != nil {
		return nil, err
	}
	return p.stdout.bytes(), nil
}

// tell has a program commit a script, for as long as that should take. It is the one that
// did the last, if that is still there.
func (r *runner) tell(ctx context.Context, work time.Duration, script, program string, args ...string) error {
	if r.late != nil {
		return r.isLate()
	}
	p := r.resident
	if r.resident = nil; p == nil || !p.stays() {
		var err error
		if p, err = r.start(ctx, program, args...); err != nil {
			return err
		}
	}
	p.began, p.fed = time.Now(), make(chan struct{})
	_, through := p.stderr.afresh(), p.stdout.afresh()
	linger := nfnetlink.Lingering
	if r.streams {
		linger = r.limit(work) // if it takes long, it is not for that
	}
	go p.feed(script, linger)
	if err := r.await(ctx, p, through, work); err != nil {
		return err
	}
	if <-p.fed; !p.leave.Stop() {
		return nil
	}
	r.streams = true
	if len(script) > short {
		p.leave.Reset(nfnetlink.Lingering)
		return nil
	}
	p.leave.Reset(residence)
	r.resident = p
	return nil
}

// limit is when a program is killed.
func (r *runner) limit(work time.Duration) time.Duration { return work + killAfter*r.patience }

// await waits until a program has ended or committed.
func (r *runner) await(ctx context.Context, p *process, through <-chan struct{}, work time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, r.limit(work))
	spare := context.AfterFunc(limited, func() {
		p.kill(limited.Err())
		cancel()
	})
	timer := time.NewTimer(r.patience + work)
	defer timer.Stop()
	var err error
	select {
	case <-p.done:
		err = p.err
	case <-through:
	case <-timer.C:
		r.late = p
		return r.isLate()
	}
	spare()
	cancel()
	return err
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
// its network namespace.
func (r *runner) start(ctx context.Context, program string, args ...string) (*process, error) {
	if r.late != nil {
		return nil, r.isLate()
	}
	ctx, kill := context.WithCancelCause(context.WithoutCancel(ctx)) // it may outlive who began it
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = 10 * time.Second // what it said may take a moment to come on a node that is overloaded
	// With all that it starts, lest a child of it go on holding the lock.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	p := &process{command: strings.Join(cmd.Args, " "), began: time.Now(), kill: kill, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		kill(nil)
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		kill(nil)
		if errors.Is(err, exec.ErrNotFound) {
			err = outcome.Caused(outcome.ReasonProgramMissing, fmt.Errorf("it is not in PATH: install iptables 1.8 or newer: %w", err))
		}
		return nil, fmt.Errorf("%s: %w", p.command, err)
	}
	go func() {
		defer kill(nil)
		defer close(p.done)
		if err := cmd.Wait(); err != nil {
			p.err = failed(p.command, errors.Join(err, context.Cause(ctx)), string(p.stderr.bytes()))
		}
	}()
	return p, nil
}

// feed gives a program a script. What fails the program will tell. It is kept from ending, and so from
// closing its socket, and not for longer than that unless it has committed by then: some
// versions read to the end before they begin.
func (p *process) feed(script string, linger time.Duration) {
	_, _ = io.WriteString(p.stdin, script)
	p.leave = time.AfterFunc(linger, func() { _ = p.stdin.Close() })
	close(p.fed)
}

// dismiss has the program that stays end.
func (r *runner) dismiss() {
	if r.resident != nil && r.resident.stays() {
		_ = r.resident.stdin.Close() // there is nothing in it
	}
	r.resident = nil
}

// stays tells whether the program is still there, and has it stay until it is fed again.
func (p *process) stays() bool {
	if !p.leave.Stop() {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
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

// errLocked says that somebody else keeps legacy iptables to himself.
var errLocked = outcome.Caused(outcome.ReasonTablesLocked,
	errors.New("another program holds the lock of iptables, /run/xtables.lock, for more than a second; it is tried again as soon as it is free"))

// refused tells whether a program ran and did not like what it was given, as against
// one that could not be run or did not come to it.
func refused(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.Exited() && !errors.Is(err, errLocked)
}
