package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.dev/fairlead/e2e/lab"
)

const (
	// askEvery is the time between two questions.
	askEvery = 2 * time.Millisecond
	// answerWithin is how long an answer may take. It does not blur what is measured: that
	// goes by when questions were sent.
	answerWithin = time.Second
)

// question is one datagram, from a port of its own.
type question struct {
	sent     time.Time
	answered bool
}

// watching is a client that asks all the time.
type watching struct {
	stop  context.CancelFunc
	done  chan struct{}
	mu    sync.Mutex
	asked []question
}

// watch asks the web server's UDP port at an address until end.
func watch(ctx context.Context, from *lab.Machine, vip netip.Addr) *watching {
	ctx, stop := context.WithCancel(ctx)
	w := &watching{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		var waiting sync.WaitGroup
		defer waiting.Wait()
		ticks := time.NewTicker(askEvery)
		defer ticks.Stop()
		for ctx.Err() == nil {
			waiting.Go(func() { w.ask(from, vip) })
			<-ticks.C
		}
	}()
	return w
}

// ask asks once. What goes wrong is a question without an answer.
func (w *watching) ask(from *lab.Machine, vip netip.Addr) {
	q := question{sent: time.Now()}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked = append(w.asked, q)
	}()
	conn, err := from.Dial(context.Background(), "udp", netip.AddrPortFrom(vip, 81).String())
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	q.sent = time.Now()
	if conn.SetDeadline(q.sent.Add(answerWithin)) != nil {
		return
	}
	if _, err := conn.Write([]byte("hostname\n")); err != nil {
		return
	}
	_, err = conn.Read(make([]byte, 256))
	q.answered = err == nil
}

// end stops asking and gives all questions in the order in which they were sent.
func (w *watching) end() []question {
	w.stop()
	<-w.done
	slices.SortFunc(w.asked, func(a, b question) int { return a.sent.Compare(b.sent) })
	return w.asked
}

// gap is the longest time between two questions, one after another, that were answered;
// what is before the first and after the last counts, too.
func gap(asked []question) time.Duration {
	var longest time.Duration
	if len(asked) == 0 {
		return 0
	}
	last := asked[0].sent
	for i, q := range asked {
		if q.answered || i == len(asked)-1 {
			longest = max(longest, q.sent.Sub(last))
			last = q.sent
		}
	}
	return longest
}

// lastLost is how long after that time the last question was sent that got no answer;
// 0 if all got one.
func lastLost(asked []question, since time.Time) time.Duration {
	for _, q := range slices.Backward(asked) {
		if !q.answered && q.sent.After(since) {
			return q.sent.Sub(since)
		}
	}
	return 0
}

// lost counts the questions that got no answer.
func lost(asked []question) int {
	n := 0
	for _, q := range asked {
		if !q.answered {
			n++
		}
	}
	return n
}

// answer waits until some question is answered.
func (w *watching) answer(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no answer within a minute"))
	defer cancel()
	return lab.Until(ctx, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !slices.ContainsFunc(w.asked, func(q question) bool { return q.answered }) {
			return errors.New("none of the questions is answered")
		}
		return nil
	})
}
