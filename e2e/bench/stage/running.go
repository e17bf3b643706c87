package stage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Running is a contestant at work on the node of a stage.
type Running struct {
	Began time.Time

	contestant Contestant
	cmd        *exec.Cmd
	ended      chan struct{} // closed when it has ended

	mu     sync.Mutex
	wanted []string // texts that its log lacks for it to have read everything
	synced time.Time
	tail   []string // of its log
}

// tailLines of a log are kept for errors.
const tailLines = 20

// Start starts a contestant until the test or the context ends, or Stop.
func (s *Stage) Start(ctx context.Context, tb testing.TB, c Contestant, p Programs) (*Running, error) {
	tb.Helper()
	if c.Variant != "" {
		if err := s.hint(ctx, p, c.Variant); err != nil {
			return nil, err
		}
	}
	r := &Running{contestant: c, cmd: c.command(ctx, p), wanted: c.synced(), ended: make(chan struct{})}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r.cmd.Stdout, r.cmd.Stderr = write, write
	s.node.Do(func() {
		r.Began = time.Now()
		err = r.cmd.Start()
	})
	if err = errors.Join(err, write.Close()); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	go r.follow(read)
	tb.Cleanup(func() {
		if err := r.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return r, nil
}

// hint leaves the chain by which a kubelet tells which variant of iptables is used.
func (s *Stage) hint(ctx context.Context, p Programs, variant string) error {
	var errs []error
	s.node.Do(func() {
		for _, name := range []string{"iptables", "ip6tables"} {
			cmd := exec.CommandContext(ctx, p.variantDir(variant)+"/"+name, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
			if out, err := cmd.CombinedOutput(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w: %s", cmd, err, out))
			}
		}
	})
	return errors.Join(errs...)
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
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Errorf("%s ended; its log:\n%s", r.contestant.Name, strings.Join(r.tail, "\n"))
	default:
		return nil
	}
}

// Tail is the end of its log.
func (r *Running) Tail() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.tail, "\n")
}

// Stop ends the process. Its rules stay, as they do on a real node.
func (r *Running) Stop() error {
	if r.Ended() != nil {
		return nil
	}
	if err := r.cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-r.ended:
		return nil
	case <-time.After(20 * time.Second):
	}
	err := r.cmd.Process.Kill()
	<-r.ended
	return err
}

// Use is what a process takes of the machine.
type Use struct {
	CPU                       time.Duration // of it and the programs that it ran
	Resident, Anonymous, Peak float64       // memory, MiB
}

// Use reads it from /proc.
func (r *Running) Use() (Use, error) {
	dir := fmt.Sprintf("/proc/%d/", r.cmd.Process.Pid)
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return Use{}, err
	}
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return Use{}, err
	}
	u, err := parseUse(string(status), string(stat))
	if err != nil {
		return Use{}, fmt.Errorf("%s: %w", dir, err)
	}
	return u, nil
}

// ticksPerSecond is USER_HZ, the unit of times in /proc, on every platform of Linux that
// Go runs on.
const ticksPerSecond = 100

// parseUse reads proc_pid_status(5) and proc_pid_stat(5).
func parseUse(status, stat string) (Use, error) {
	var u Use
	for line := range strings.Lines(status) {
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
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
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

// Worst is the Service that flows have the longest way to: the last in the list that
// kube-proxy's iptables mode has every packet walk through; otherwise ours to choose.
func (s *Stage) Worst(ctx context.Context, c Contestant, p Programs, otherwise netip.AddrPort) (netip.AddrPort, error) {
	if c.Ours || c.Mode != "iptables" {
		return otherwise, nil
	}
	var out []byte
	var err error
	s.node.Do(func() {
		out, err = exec.CommandContext(ctx, p.variantDir(c.Variant)+"/iptables-save", "-t", "nat").Output()
	})
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("iptables-save: %w", err)
	}
	return lastService(string(out), otherwise.Port())
}

// lastService finds the last Service with this port in kube-proxy's list.
func lastService(save string, port uint16) (netip.AddrPort, error) {
	var last netip.Addr
	for line := range strings.Lines(save) {
		rest, ok := strings.CutPrefix(line, "-A KUBE-SERVICES -d ")
		if !ok || !strings.Contains(line, fmt.Sprintf("--dport %d ", port)) {
			continue
		}
		address, _, _ := strings.Cut(rest, "/")
		parsed, err := netip.ParseAddr(address)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("%q: %w", line, err)
		}
		last = parsed
	}
	if !last.IsValid() {
		return netip.AddrPort{}, errors.New("the chain KUBE-SERVICES has no Service")
	}
	return netip.AddrPortFrom(last, port), nil
}
