package forwarding

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/e2e/bench/figures"
	"fairlead.dev/fairlead/e2e/bench/flows"
	"fairlead.dev/fairlead/e2e/bench/objects"
	"fairlead.dev/fairlead/e2e/bench/process"
	"fairlead.dev/fairlead/e2e/bench/stage"
)

const (
	// samples are how many Services must answer for a fill to be over.
	samples = 16
	// fillPause is between attempts to reach a Service that is not there yet.
	fillPause = 2 * time.Millisecond
	// changePause is between attempts to see a change, which are not to take the CPU
	// away from the program that makes it.
	changePause = 200 * time.Microsecond
	// attempts are how often a Service is asked again that does not answer at once.
	attempts = 20
	// enough Services that do not answer are no accident; each takes a second to be sure of.
	enough = 10
	// restPause is between changes.
	restPause = 50 * time.Millisecond
)

// unfinished is the error of a contestant that runs and does not get done.
type unfinished struct {
	what     string // it should have done
	patience time.Duration
	last     error  // of the last attempt
	log      string // the end of the contestant's
}

// String is the error without what only helps to find the cause.
func (u *unfinished) String() string {
	return fmt.Sprintf("did not finish %s within its patience of %s", u.what, u.patience)
}

func (u *unfinished) Error() string {
	return fmt.Sprintf("%s: %v; the log:\n%s", u.String(), u.last, u.log)
}

// wait is what to wait for, and until when.
type wait struct {
	what  string // as in [unfinished]
	until time.Time
	pause time.Duration // between attempts
	meant func(endpoint netip.Addr) bool
}

// fill times how long a contestant that was just started takes to program all Services.
func (r *run) fill(ctx context.Context, s *stage.Stage, running *process.Running, c stage.Contestant, size int) error {
	var at time.Time
	var err error
	all := wait{
		what: fmt.Sprintf("programming %d Services", size), until: running.Began.Add(r.Patience),
		pause: fillPause, meant: func(netip.Addr) bool { return true },
	}
	s.AtClient(func() {
		for i := range samples {
			service := size - 1 - i*max(size/samples, 1)
			if service < 0 {
				break
			}
			if at, err = r.await(ctx, running, service, all); err != nil {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	use, err := running.Use()
	if err != nil {
		return err
	}
	took := at.Sub(running.Began)
	r.results.Add(c.Name, size, figures.Fill, took.Seconds())
	r.results.Add(c.Name, size, figures.FillCPU, use.CPU.Seconds())
	told := "when its caches had synced it did not say"
	if synced, ok := running.Synced(); ok {
		r.results.Add(c.Name, size, figures.FillSynced, at.Sub(synced).Seconds())
		told = fmt.Sprintf("%.2f s after its caches had synced", at.Sub(synced).Seconds())
	}
	r.Say("%d Services, %s: all programmed in %.2f s, %s, CPU time %.2f s", size, c.Name, took.Seconds(), told, use.CPU.Seconds())
	return r.askAll(s, size)
}

// askAll fails unless every single Service answers, if not at once because the machine
// is busy.
func (r *run) askAll(s *stage.Stage, size int) error {
	var failed []error
	s.AtClient(func() {
		for i := range size {
			_, err := flows.Ask(objects.Address(i))
			for n := 0; err != nil && n < attempts; n++ {
				_, err = flows.Ask(objects.Address(i))
			}
			if err != nil {
				failed = append(failed, err)
			}
			if len(failed) == enough {
				return
			}
		}
	})
	if len(failed) > 0 {
		return fmt.Errorf("%d or more of %d Services do not answer, the first: %w", len(failed), size, failed[0])
	}
	return nil
}

// await asks a Service until one of the endpoints answers that are meant. It is to be
// called at the client.
func (r *run) await(ctx context.Context, running *process.Running, service int, w wait) (time.Time, error) {
	pause := unix.NsecToTimespec(w.pause.Nanoseconds())
	for {
		answer, err := flows.Ask(objects.Address(service))
		now := time.Now()
		switch {
		case err == nil && w.meant(answer.Endpoint):
			return now, nil
		case ctx.Err() != nil:
			return time.Time{}, ctx.Err()
		case running.Ended() != nil:
			return time.Time{}, running.Ended()
		case now.After(w.until):
			if err == nil {
				err = fmt.Errorf("%s answers", answer.Endpoint)
			}
			return time.Time{}, &unfinished{w.what, r.Patience, err, running.Tail()}
		}
		// A timer of Go's is a millisecond late.
		_ = unix.Nanosleep(&pause, nil)
	}
}

// follow times how long changes of endpoints take.
func (r *run) follow(ctx context.Context, s *stage.Stage, running *process.Running, c stage.Contestant, size int) error {
	r.Rest(ctx)
	before, err := running.Use()
	if err != nil {
		return err
	}
	var took []float64
	after := before
	until := time.Now().Add(r.Patience)
	for ; len(took) < r.Changes; time.Sleep(restPause) {
		one, err := r.change(ctx, s, running, spread(len(took), size), until)
		late, isLate := errors.AsType[*unfinished](err)
		if isLate && len(took) > 0 {
			// What it has done counts, and its rules are whole.
			r.Say("%d Services, %s: %s", size, c.Name, late.String())
			r.results.Note(fmt.Sprintf("%s made %d of %d changes of endpoints at %d Services within its patience of %s",
				c.Name, len(took), r.Changes, size, r.Patience))
			break
		}
		if err != nil {
			return fmt.Errorf("a change of endpoints: %w", err)
		}
		if after, err = running.Use(); err != nil {
			return err
		}
		took = append(took, figures.Milliseconds(one))
	}
	if len(took) == 0 {
		return nil
	}
	cpu := figures.Milliseconds(after.CPU-before.CPU) / float64(len(took))
	r.results.Add(c.Name, size, figures.Change, took...)
	r.results.Add(c.Name, size, figures.ChangeCPU, cpu)
	slices.Sort(took)
	r.Say("%d Services, %s: %d changes of endpoints, median %.2f ms, longest %.2f ms, CPU time of one %.1f ms",
		size, c.Name, len(took), took[len(took)/2], took[len(took)-1], cpu)
	return nil
}

// spread is a Service for the n-th change, another for each and far from the last.
func spread(n, size int) int {
	const prime = 7919
	return n * prime % size
}

// change replaces the endpoints of one Service and times it until one of them answers.
func (r *run) change(ctx context.Context, s *stage.Stage, running *process.Running, service int, until time.Time) (time.Duration, error) {
	next := r.services.Next(service)
	isNext := func(a netip.Addr) bool { return slices.Contains(next, a) }
	done := wait{what: "a change of endpoints", until: until, pause: changePause, meant: isNext}
	type seen struct {
		at  time.Time
		err error
	}
	answered := make(chan seen, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.AtClient(func() {
		at, err := r.await(ctx, running, service, done)
		answered <- seen{at, err}
	})
	changed, err := r.services.Replace(ctx, service)
	if err != nil {
		cancel()
		<-answered
		return 0, err
	}
	first := <-answered
	return first.at.Sub(changed), first.err
}
