package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/e2e/bench/figures"
	"fairlead.dev/fairlead/e2e/bench/flows"
	"fairlead.dev/fairlead/e2e/bench/objects"
	"fairlead.dev/fairlead/e2e/bench/stage"
)

const (
	// samples are how many Services must answer for a fill to be over.
	samples = 16
	// fillPause is between attempts to reach a Service that is not there yet.
	fillPause = 2 * time.Millisecond
	// changePause is between attempts to see a change, which are not to take the CPU
	// away from who makes it.
	changePause = 200 * time.Microsecond
	// attempts are how often a Service is asked again that does not answer at once.
	attempts = 20
	// restPause is between changes.
	restPause = 50 * time.Millisecond
	// patienceForOne is how long a single change may take.
	patienceForOne = 2 * time.Minute
)

// fill times how long a contestant that was just started takes to program all Services.
func (r *run) fill(ctx context.Context, s *stage.Stage, running *stage.Running, c stage.Contestant, size int) error {
	var at time.Time
	var err error
	s.AtClient(func() {
		for i := range samples {
			service := size - 1 - i*max(size/samples, 1)
			if service < 0 {
				break
			}
			isAny := func(netip.Addr) bool { return true }
			if at, err = r.await(ctx, running, service, isAny, fillPause, r.patience); err != nil {
				return
			}
		}
	})
	if err != nil {
		return fmt.Errorf("programming %d Services: %w", size, err)
	}
	use, err := running.Use()
	if err != nil {
		return errors.Join(running.Ended(), err)
	}
	took := at.Sub(running.Began)
	r.results.Add(c.Name, size, figures.Fill, took.Seconds())
	r.results.Add(c.Name, size, figures.FillCPU, use.CPU.Seconds())
	told := "when its caches had synced it did not say"
	if synced, ok := running.Synced(); ok {
		r.results.Add(c.Name, size, figures.FillSynced, at.Sub(synced).Seconds())
		told = fmt.Sprintf("%.2f s after its caches had synced", at.Sub(synced).Seconds())
	}
	r.say("%d Services, %s: all programmed in %.2f s, %s, CPU time %.2f s", size, c.Name, took.Seconds(), told, use.CPU.Seconds())
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
		}
	})
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d Services do not answer, the first: %w", len(failed), size, failed[0])
	}
	return nil
}

// await asks a Service until one of the endpoints answers that are meant. It is to be
// called at the client.
func (r *run) await(ctx context.Context, running *stage.Running, service int, meant func(netip.Addr) bool, pause, patience time.Duration) (time.Time, error) {
	wait := unix.NsecToTimespec(pause.Nanoseconds())
	for began := time.Now(); ; {
		answer, err := flows.Ask(objects.Address(service))
		now := time.Now()
		switch {
		case err == nil && meant(answer.Endpoint):
			return now, nil
		case ctx.Err() != nil:
			return time.Time{}, ctx.Err()
		case running.Ended() != nil:
			return time.Time{}, running.Ended()
		case now.Sub(began) > patience:
			if err == nil {
				err = fmt.Errorf("%s answers", answer.Endpoint)
			}
			return time.Time{}, fmt.Errorf("given up after %s: %w; the log:\n%s", patience, err, running.Tail())
		}
		// A timer of Go's is a millisecond late.
		_ = unix.Nanosleep(&wait, nil)
	}
}

// follow times how long changes of endpoints take.
func (r *run) follow(ctx context.Context, s *stage.Stage, running *stage.Running, c stage.Contestant, size int) error {
	r.rest(ctx)
	before, err := running.Use()
	if err != nil {
		return errors.Join(running.Ended(), err)
	}
	var took []float64
	for began := time.Now(); len(took) < r.changes && time.Since(began) < r.patience; time.Sleep(restPause) {
		one, err := r.change(ctx, s, running, spread(len(took), size))
		if err != nil {
			return fmt.Errorf("a change of endpoints: %w", err)
		}
		took = append(took, millis(one))
	}
	if len(took) == 0 {
		return nil
	}
	after, err := running.Use()
	if err != nil {
		return errors.Join(running.Ended(), err)
	}
	cpu := millis(after.CPU-before.CPU) / float64(len(took))
	r.results.Add(c.Name, size, figures.Change, took...)
	r.results.Add(c.Name, size, figures.ChangeCPU, cpu)
	slices.Sort(took)
	r.say("%d Services, %s: %d changes of endpoints, median %.2f ms, longest %.2f ms, CPU time of one %.1f ms",
		size, c.Name, len(took), took[len(took)/2], took[len(took)-1], cpu)
	return nil
}

// spread is a Service for the n-th change, another for each and far from the last.
func spread(n, size int) int {
	const prime = 7919
	return n * prime % size
}

// change replaces the endpoints of one Service and times it until one of them answers.
func (r *run) change(ctx context.Context, s *stage.Stage, running *stage.Running, service int) (time.Duration, error) {
	next := r.services.Next(service)
	isNext := func(a netip.Addr) bool { return slices.Contains(next, a) }
	type seen struct {
		at  time.Time
		err error
	}
	answered := make(chan seen, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.AtClient(func() {
		at, err := r.await(ctx, running, service, isNext, changePause, patienceForOne)
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

// rest waits for the machine to become idle, and remembers how busy it was at the worst
// when that took too long.
func (r *run) rest(ctx context.Context) {
	const idle, window = 0.05, 500 * time.Millisecond
	var busy float64
	for began := time.Now(); ctx.Err() == nil; {
		worked, total := cpuTime()
		time.Sleep(window)
		workedNow, totalNow := cpuTime()
		busy = (workedNow - worked) / max(totalNow-total, 1)
		if busy < idle || time.Since(began) > r.settle {
			break
		}
	}
	r.busiest = max(r.busiest, busy)
}

// cpuTime is what all processors have worked and all time there was, see proc_stat(5).
func cpuTime() (worked, total float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:] {
		ticks, err := strconv.ParseFloat(field, 64)
		const idle, ioWait, steal = 3, 4, 7
		if err != nil || i > steal {
			break
		}
		total += ticks
		if i != idle && i != ioWait {
			worked += ticks
		}
	}
	return worked, total
}
