package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// Capture records the packets on a machine's LAN link.
type Capture struct {
	stop  context.CancelFunc
	done  chan struct{}
	mu    sync.Mutex
	lines []string
	err   error
}

// Capture starts to record the packets that match a filter, as of tcpdump, and
// returns once it sees them. It lasts until Stop or the context's end. An error has what tcpdump said.
func (m *Machine) Capture(ctx context.Context, filter string) (*Capture, error) {
	ctx, stop := context.WithCancel(ctx)
	c := &Capture{stop: stop, done: make(chan struct{})}
	notices, notice := io.Pipe()
	packets, packet := io.Pipe()
	go func() {
		err := m.Run(ctx, Stdio{Out: packet, Err: notice},
			"tcpdump", "-i", uplink, "--immediate-mode", "-l", "-n", "-e", "-tt", filter)
		if ctx.Err() == nil { // not stopped, but failed
			c.err = err
		}
		_, _ = packet.Close(), notice.Close() // a pipe's Close never fails
	}()
	go c.collect(packets)

	scanner := bufio.NewScanner(notices)
	var said []string
	for scanner.Scan() {
		if strings.HasPrefix(scanner.Text(), "listening on") {
			go func() { _, _ = io.Copy(io.Discard, notices) }()
			return c, nil
		}
		said = append(said, scanner.Text())
	}
	cause := context.Cause(ctx)
	c.Stop()
	return nil, fmt.Errorf("capture %q on %s: %s: %w", filter, m.Name, strings.Join(said, ": "), errors.Join(c.err, cause))
}

func (c *Capture) collect(packets io.Reader) {
	defer close(c.done)
	scanner := bufio.NewScanner(packets)
	for scanner.Scan() {
		c.mu.Lock()
		c.lines = append(c.lines, scanner.Text())
		c.mu.Unlock()
	}
}

// Lines are the packets so far, one line each with the time in seconds since
// 1970 and the link-layer header first.
func (c *Capture) Lines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.lines...)
}

// Stop ends the capture and gives all its lines.
func (c *Capture) Stop() []string {
	c.stop()
	<-c.done
	return c.Lines()
}
