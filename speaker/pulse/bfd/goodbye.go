package bfd

import (
	"context"
	"errors"
	"time"

	"fairlead.dev/fairlead/internal/signal"
)

// Goodbye tells all peers that this process ends, which is final: with 0 that the node
// leaves (AdminDown), else that they shall go without packets for so long, as it restarts.
// Then it waits until they know or ctx is done.
func (s *Sessions) Goodbye(ctx context.Context, hold time.Duration) error {
	if hold > 0 {
		return s.holdOn(ctx, hold)
	}
	s.leave()
	return nil
}

func (s *Sessions) holdOn(ctx context.Context, d time.Duration) error {
	s.each(func(now time.Time, have *session) {
		s.change(now, have, func(m *machine) []Packet {
			m.holdOn(now, d)
			return m.tick(now)
		})
	})
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		waiting := 0
		s.each(func(_ time.Time, have *session) {
			if have.machine.state == Up && have.machine.polling {
				waiting++
			}
		})
		if waiting == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("not all BFD peers have agreed to wait for the restart"), ctx.Err())
		case <-look.C:
		}
	}
}

// leave tells all peers AdminDown, several times as nobody acknowledges it.
func (s *Sessions) leave() {
	const times, gap = 3, 5 * time.Millisecond
	for i := range times {
		s.each(func(now time.Time, have *session) {
			if i == 0 && have.parting.IsZero() {
				s.part(now, have)
			} else {
				s.send(have, have.machine.packet())
			}
		})
		if i < times-1 {
			time.Sleep(gap)
		}
	}
}

func (s *Sessions) each(do func(now time.Time, have *session)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, have := range s.all {
		do(now, have)
	}
	signal.Send(s.wake)
}
