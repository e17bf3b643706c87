// Package process runs the programs that a benchmark measures, follows their logs and reads
// how much CPU time and memory they use.
package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Running is a program at work.
type Running struct {
	Began time.Time

	name  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	over  bool          // nothing of its group is left

	mu     sync.Mutex
	wanted []string // texts that its log lacks for it to have read everything
	synced time.Time
	tail   []string // of its log
}

const (
	// tailLines of a log are kept for errors.
	tailLines = 20
	// grace is how long a process that was asked to end may take.
	grace = 20 * time.Second
	// lastBreath is how long one that was killed may take: until the kernel is done with
	// what it was told to do.
	lastBreath = time.Minute
)

// Start starts a program until the test or the context of its command ends, or Stop; the
// programs that it has started end with it. The texts are those that its log has once it
// has read everything; in says where it is started, as in a network namespace. An error says that
// it could not be started.
func Start(tb testing.TB, name string, cmd *exec.Cmd, in func(start func()), texts ...string) (*Running, error) {
	tb.Helper()
	r := prepare(name, cmd, texts)
	var err error
	in(func() { err = r.begin() })
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	tb.Cleanup(func() {
		if err := r.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return r, nil
}

// prepare makes the command the leader of a group, so that what it starts ends with it.
func prepare(name string, cmd *exec.Cmd, texts []string) *Running {
	r := &Running{name: name, cmd: cmd, wanted: texts, ended: make(chan struct{})}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if cmd.Cancel != nil {
		cmd.Cancel = r.kill
	}
	return r
}

// begin starts the command in the namespace of the calling thread.
func (r *Running) begin() error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	r.cmd.Stdout, r.cmd.Stderr = write, write
	r.Began = time.Now()
	if err = errors.Join(r.cmd.Start(), write.Close()); err != nil {
		return errors.Join(err, read.Close())
	}
	go r.follow(read)
	return nil
}

// Build makes one of this checkout's programs. An error has the compiler's output.
func Build(ctx context.Context, pkg, to string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", to, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", pkg, err, out)
	}
	return nil
}

// follow reads the log until the process ends.
func (r *Running) follow(log io.ReadCloser) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		r.note(lines.Text(), time.Now())
	}
	_ = log.Close()
	_ = r.cmd.Wait() // that it ended is what counts; why is in its log
	close(r.ended)
}

func (r *Running) note(line string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tail = append(r.tail, line)
	r.tail = r.tail[max(0, len(r.tail)-tailLines):]
	for i, text := range r.wanted {
		if strings.Contains(line, text) {
			r.wanted = append(r.wanted[:i:i], r.wanted[i+1:]...)
			if len(r.wanted) == 0 {
				r.synced = now
			}
			return
		}
	}
}

// Synced is when it had read all Services and endpoints; false if its log has not said so.
func (r *Running) Synced() (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synced, !r.synced.IsZero()
}

// Ended is the error of a process that should still run and does not.
func (r *Running) Ended() error {
	select {
	case <-r.ended:
		return fmt.Errorf("%s ended; its log:\n%s", r.name, r.Tail())
	default:
		return nil
	}
}

// Done is closed when the process has ended.
func (r *Running) Done() <-chan struct{} { return r.ended }

// Tail is the end of its log.
func (r *Running) Tail() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.tail, "\n")
}

// Stop ends the process. What it has told the kernel stays, as it does on a real node. It is an
// error if programs that it started do not end.
func (r *Running) Stop() error {
	if r.Ended() == nil {
		if err := r.cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		select {
		case <-r.ended:
		case <-time.After(grace):
		}
	}
	return r.Abandon()
}

// Abandon ends the process at once and with it the programs that it runs, such as an
// iptables-restore that would go on for minutes and take the processor from others. It is an
// error if they do not end.
func (r *Running) Abandon() error {
	if r.over {
		return nil // the number of the group may be another's by now
	}
	err := r.kill()
	<-r.ended
	for began := time.Now(); err == nil; err = r.kill() {
		if time.Since(began) > lastBreath {
			return fmt.Errorf("programs that %s started do not end, though killed %s ago", r.name, lastBreath)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	r.over = true
	return nil
}

// kill ends the group; [os.ErrProcessDone] if nothing of it is left.
func (r *Running) kill() error {
	err := unix.Kill(-r.cmd.Process.Pid, unix.SIGKILL)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// Use is what a process takes of the machine.
type Use struct {
	CPU                       time.Duration // of it and the programs that it ran
	Resident, Anonymous, Peak float64       // memory, MiB
}

// Use reads it from /proc. The error of a process that has ended has the end of its log.
func (r *Running) Use() (Use, error) {
	dir := fmt.Sprintf("/proc/%d/", r.cmd.Process.Pid)
	status, err := os.ReadFile(dir + "status")
	stat, err2 := os.ReadFile(dir + "stat")
	if err := errors.Join(err, err2); err != nil {
		return Use{}, errors.Join(r.Ended(), err)
	}
	u, err := ParseUse(string(status) + string(stat))
	if err != nil {
		return Use{}, errors.Join(r.Ended(), fmt.Errorf("%s: %w", dir, err))
	}
	return u, nil
}

// ticksPerSecond is USER_HZ, the unit of times in /proc, on every platform of Linux that
// Go runs on.
const ticksPerSecond = 100

// ParseUse reads proc_pid_status(5) with proc_pid_stat(5) after it. It is an error if one of them is too short.
func ParseUse(text string) (Use, error) {
	var u Use
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		into := map[string]*float64{"VmRSS": &u.Resident, "RssAnon": &u.Anonymous, "VmHWM": &u.Peak}[name]
		if into == nil {
			continue
		}
		kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
		if err != nil {
			return Use{}, err
		}
		*into = float64(kib) / 1024
	}
	// The second field, in brackets, may hold anything.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const third, utime, cstime = 3, 14, 17 // counted from 1
	if u.Resident == 0 || len(fields) <= cstime-third {
		return Use{}, errors.New("status or stat is too short")
	}
	for _, field := range fields[utime-third : cstime-third+1] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			return Use{}, err
		}
		u.CPU += time.Duration(ticks) * time.Second / ticksPerSecond
	}
	return u, nil
}
