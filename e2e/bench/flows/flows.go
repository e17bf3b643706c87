// Package flows makes TCP connections one after another, as cheaply as a program can, so
// that what is measured is the kernel: connect, send one byte, read which endpoint
// answered, close.
package flows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a step of a flow may take before it counts as failed. It is
// short: what probes wants to try again, not to wait for a SYN that is sent once more.
const patience = 50 * time.Millisecond

// Answer is what came of one flow.
type Answer struct {
	Endpoint       netip.Addr // the address that the server was reached at
	Connect, Whole time.Duration
}

// Ask makes one flow to an IPv4 address and port. An error is that of the socket, or a timeout.
func Ask(to netip.AddrPort) (Answer, error) {
	began := time.Now()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Answer{}, fmt.Errorf("open a socket: %w", err)
	}
	var a Answer
	var response [4]byte
	err = func() error {
		for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
			timeout := unix.NsecToTimeval(patience.Nanoseconds())
			if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &timeout); err != nil {
				return err
			}
		}
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
			return err
		}
		a.Connect = time.Since(began)
		if _, err := unix.Write(fd, []byte{'?'}); err != nil {
			return err
		}
		n, err := unix.Read(fd, response[:])
		if err == nil && n != len(response) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}()
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return Answer{}, fmt.Errorf("ask %s: %w", to, err)
	}
	a.Endpoint, a.Whole = netip.AddrFrom4(response), time.Since(began)
	return a, nil
}

// Serve answers on a port of all IPv4 addresses until ctx ends, one flow after another,
// pinned to one CPU. It calls ready when it listens. An error says that it could not listen or
// pin itself.
func Serve(ctx context.Context, port, cpu int, ready func()) error {
	if err := pin(cpu); err != nil {
		return err
	}
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	// Accepted sockets inherit it: no client can hold up the others.
	timeout := unix.NsecToTimeval(patience.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptTimeval(listener, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.Bind(listener, &unix.SockaddrInet4{Port: port}),
		unix.Listen(listener, 1024),
	)
	if err != nil {
		return errors.Join(fmt.Errorf("listen on port %d: %w", port, err), unix.Close(listener))
	}
	ready()
	for ctx.Err() == nil {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if err != nil {
			continue // no client came in time, or one went away again
		}
		answer(fd)
	}
	return unix.Close(listener)
}

// answer serves one flow. Whatever fails, the client sees it.
func answer(fd int) {
	defer func() { _ = unix.Close(fd) }()
	var question [1]byte
	if n, err := unix.Read(fd, question[:]); err != nil || n == 0 {
		return
	}
	local, err := unix.Getsockname(fd)
	if v4, ok := local.(*unix.SockaddrInet4); err == nil && ok {
		_, _ = unix.Write(fd, v4.Addr[:])
	}
}

// Result is what many flows took.
type Result struct {
	PerSecond      float64
	Connect, Whole time.Duration // medians
	Failed         int
}

// Measure makes flows one after another, pinned to one CPU. Some more come before, which
// do not count. That of all many fail is an error.
func Measure(to netip.AddrPort, flows, cpu int) (Result, error) {
	if err := pin(cpu); err != nil {
		return Result{}, err
	}
	const warmUp = 100
	for range warmUp {
		_, _ = Ask(to) // failures show in those that count
	}
	connects, wholes := make([]time.Duration, 0, flows), make([]time.Duration, 0, flows)
	var last error
	began := time.Now()
	for range flows {
		a, err := Ask(to)
		if err != nil {
			last = err
			continue
		}
		connects, wholes = append(connects, a.Connect), append(wholes, a.Whole)
	}
	elapsed := time.Since(began)
	failed := flows - len(wholes)
	if failed > flows/100 {
		return Result{}, fmt.Errorf("%d of %d flows failed, the last one: %w", failed, flows, last)
	}
	slices.Sort(connects)
	slices.Sort(wholes)
	return Result{
		PerSecond: float64(len(wholes)) / elapsed.Seconds(),
		Connect:   connects[len(connects)/2], Whole: wholes[len(wholes)/2], Failed: failed,
	}, nil
}

// Write renders a result for the process that asked for it. An error is the writer's.
func (r Result) Write(to io.Writer) error { return json.NewEncoder(to).Encode(r) }

// ParseResult reads what Write wrote. Any other text is an error.
func ParseResult(text []byte) (Result, error) {
	var r Result
	if err := json.Unmarshal(text, &r); err != nil {
		return Result{}, fmt.Errorf("result of a measurement, %q: %w", text, err)
	}
	return r, nil
}

// pin keeps the calling goroutine on one CPU for the rest of its life.
func pin(cpu int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	return nil
}
