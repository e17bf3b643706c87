// Package probe asks a Service all the time and tells for how long it gave no answer. That goes by
// when questions were sent; how long an answer takes does not blur it.
package probe

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"fairlead.dev/fairlead/e2e/lab"
)

// Question is one of those that were asked.
type Question struct {
	Sent              time.Time
	settled, Answered bool
	heard             time.Time // when the answer came
}

// FirstAnswer returns when the first answer came; false if none did. The question may be an earlier one than others
// that were answered: the kernel of a client keeps packets for an address until a node answers for it.
func FirstAnswer(all []Question) (at time.Time, ok bool) {
	for _, q := range all {
		if q.Answered && (!ok || q.heard.Before(at)) {
			at, ok = q.heard, true
		}
	}
	return at, ok
}

// Probe asks until End.
type Probe struct {
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	all    []Question // in the order in which they were sent; they are not answered in order
	marked int        // so many were sent before the mark
	isSet  bool       // the mark
}

// Start asks so often. An error of ask, or none within that time, is a question without an answer.
func Start(ctx context.Context, every, within time.Duration, ask func(ctx context.Context) error) *Probe {
	ctx, stop := context.WithCancel(ctx)
	p := &Probe{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		var waiting sync.WaitGroup
		defer waiting.Wait()
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for ctx.Err() == nil {
			settle := p.ask(time.Now())
			waiting.Go(func() {
				one, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
				defer cancel()
				settle(ask(one) == nil)
			})
			<-ticks.C
		}
	}()
	return p
}

// ask notes a question. What it returns is to be called once, with whether it was answered.
func (p *Probe) ask(at time.Time) (settle func(answered bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := len(p.all)
	p.all = append(p.all, Question{Sent: at})
	return func(answered bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all[i].settled, p.all[i].Answered, p.all[i].heard = true, answered, time.Now()
	}
}

// Mark tells that only questions from now on show that nothing is lost any more.
func (p *Probe) Mark() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marked, p.isSet = len(p.all), true
}

// Unbroken tells whether so many questions after the mark were answered in a row, once all before
// them are settled; and if so, when the first of that row was asked, be it before the mark, and whether any
// was lost before it.
func (p *Probe) Unbroken(wanted int) (since time.Time, interrupted, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isSet {
		return time.Time{}, false, false
	}
	first := 0 // of the row
	for i, q := range p.all {
		switch {
		case !q.settled:
			return time.Time{}, false, false
		case !q.Answered:
			first = i + 1
		case i+1-max(first, p.marked) >= wanted:
			return p.all[first].Sent, first > 0, true
		}
	}
	return time.Time{}, false, false
}

// End stops asking and returns all questions in the order in which they were sent.
func (p *Probe) End() []Question {
	p.stop()
	<-p.done
	return p.all
}

// Answer waits until some question is answered. It is an error if none is within a minute.
func (p *Probe) Answer(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no answer within a minute"))
	defer cancel()
	return lab.Until(ctx, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !slices.ContainsFunc(p.all, func(q Question) bool { return q.Answered }) {
			return errors.New("none of the questions is answered")
		}
		return nil
	})
}

// Gap returns the longest time between two questions, one after another, that were answered;
// what is before the first and after the last counts, too.
func Gap(asked []Question) time.Duration {
	var longest time.Duration
	if len(asked) == 0 {
		return 0
	}
	last := asked[0].Sent
	for i, q := range asked {
		if q.Answered || i == len(asked)-1 {
			longest = max(longest, q.Sent.Sub(last))
			last = q.Sent
		}
	}
	return longest
}

// LastLost returns how long after that time the last question was sent that got no answer;
// 0 if all got one.
func LastLost(asked []Question, since time.Time) time.Duration {
	for _, q := range slices.Backward(asked) {
		if !q.Answered && q.Sent.After(since) {
			return q.Sent.Sub(since)
		}
	}
	return 0
}

// Lost counts the questions that got no answer.
func Lost(asked []Question) int {
	n := 0
	for _, q := range asked {
		if !q.Answered {
			n++
		}
	}
	return n
}
