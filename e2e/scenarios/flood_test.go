package scenarios

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/probe"
)

const (
	// floodPatience is how long one request of a flood may take. A SYN that is lost, as the
	// lab loses one now and then, is sent again after one second and after three.
	floodPatience = 8 * time.Second
	// answerPatience is how long one may take once its connection was made: of that, no lost SYN is an excuse.
	answerPatience = 3 * time.Second
	// floodMost bounds the requests under way.
	floodMost = 4000
)

// flood opens so many connections a second, each for one request and whether or not those
// before were answered, until ctx ends, and counts.
func flood(ctx context.Context, from *lab.Machine, address netip.Addr, port uint16, rate int) tally {
	return floodWithin(ctx, from, address, port, rate, floodPatience)
}

// floodWithin is [flood] with another patience.
func floodWithin(ctx context.Context, from *lab.Machine, address netip.Addr, port uint16, rate int, patience time.Duration) tally {
	f := flooding{
		patience: patience,
		from:     from, to: netip.AddrPortFrom(address, port), last: time.Now(), stalls: probe.WatchStalls(),
		count: tally{Errors: map[string]int{}, Sources: map[netip.Addr]int{}, Pods: map[string]int{}},
	}
	defer f.stalls.Stop()
	room := make(chan struct{}, floodMost)
	var waiting sync.WaitGroup
	ticks := time.NewTicker(time.Second / time.Duration(rate))
	defer ticks.Stop()
	for ; ctx.Err() == nil; <-ticks.C {
		room <- struct{}{}
		waiting.Go(func() {
			defer func() { <-room }()
			f.request()
		})
	}
	waiting.Wait()
	return f.count
}

// flooding is one flood.
type flooding struct {
	patience time.Duration
	from     *lab.Machine
	to       netip.AddrPort
	stalls   *probe.Stalls

	mu    sync.Mutex
	count tally
	last  time.Time // of a reply
}

// request makes one and counts it.
func (f *flooding) request() {
	began := time.Now()
	pod, connected, err := f.ask(began.Add(f.patience))
	now := time.Now()
	held := err != nil && f.stalls.Since(began)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case held:
		f.count.Held++
	case err != nil:
		f.count.Failed++
		f.count.Errors[err.Error()]++
		f.count.Lost = append(f.count.Lost, span{began, now})
		if connected {
			f.count.Cut = append(f.count.Cut, span{began, now})
		}
	default:
		f.count.OK++
		f.count.Pods[pod]++
		f.count.Longest = max(f.count.Longest, now.Sub(f.last))
		f.last = now
	}
}

// ask asks over a connection of its own, which ends with a reset: the client would run out
// of ports if each rested for a minute. It tells whether the connection was made.
func (f *flooding) ask(until time.Time) (pod string, connected bool, err error) {
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	conn, err := f.from.Dial(ctx, "tcp", f.to.String())
	if err != nil {
		// One that is reset was made: who refuses it is told apart.
		return "", errors.Is(err, syscall.ECONNRESET), withoutPort(err)
	}
	if answered := time.Now().Add(answerPatience); answered.Before(until) {
		until = answered
	}
	pod, err = f.over(ctx, conn, until)
	return pod, true, err
}

// over asks over a connection, and ends it.
func (f *flooding) over(ctx context.Context, conn net.Conn, until time.Time) (pod string, err error) {
	defer func() { err = errors.Join(withoutPort(err), conn.Close()) }()
	if tcp, is := conn.(*net.TCPConn); is {
		if err := tcp.SetLinger(0); err != nil {
			return "", err
		}
	}
	if err := conn.SetDeadline(until); err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.to.String()+"/hostname", http.NoBody)
	if err != nil {
		return "", err
	}
	if err := request.Write(conn); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	return lab.Body(response)
}

// withoutPort is an error without the client's port, so that those of one kind count as one.
func withoutPort(err error) error {
	if failed, is := errors.AsType[*net.OpError](err); is {
		return fmt.Errorf("%s: %w", failed.Op, failed.Err)
	}
	return err
}
