// Package handover has the kernel hand over, to the node that had an address before, what belongs to TCP
// connections that were open when the address moved to this node.
package handover

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/signal"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
)

// againEvery is the time between two attempts at what has failed.
const againEvery = 10 * time.Second

// Handover keeps a Table in a goroutine of its own: the kernel lets no two write to nf_tables at once, and a
// writer of all rules of a node takes long.
type Handover struct {
	table   *Table
	log     *slog.Logger
	wake    chan struct{}
	changed chan struct{}

	mu      sync.Mutex
	want    map[netip.Addr]netip.Addr // nil: what an earlier process left stays
	tried   chan struct{}             // closed once an Apply of want has ended
	failure string
}

// New returns a handover that writes nothing before Run.
func New(log *slog.Logger) *Handover {
	return &Handover{table: NewTable(), log: log, wake: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
}

// Set takes in, by address, the address of the node that had it before. The channel is closed once the kernel
// has it, or refuses it. The caller does not change the map any more.
func (h *Handover) Set(want map[netip.Addr]netip.Addr) (tried <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.want == nil || !maps.Equal(want, h.want) {
		h.want, h.tried = want, make(chan struct{})
		signal.Send(h.wake)
	}
	return h.tried
}

// Failure returns why not all of it is in the kernel; "" if it is, or nothing is known yet.
func (h *Handover) Failure() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failure
}

// Changed receives after Failure has changed. It is for one receiver.
func (h *Handover) Changed() <-chan struct{} { return h.changed }

// Run keeps the kernel as wanted until ctx ends, and returns nil then. What others change is written again, and
// what fails is tried again. The table stays: the next process goes on with it.
func (h *Handover) Run(ctx context.Context) error {
	ticker := time.NewTicker(kernelwatch.Interval)
	defer ticker.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
		case <-ticker.C:
			if again := h.Failure() != "" && time.Since(last) >= againEvery; !again && !h.table.Disturbed() {
				continue
			}
		}
		last = time.Now()
		h.apply()
	}
}

func (h *Handover) apply() {
	h.mu.Lock()
	want, tried := h.want, h.tried
	h.mu.Unlock()
	if want == nil {
		return
	}
	failure := ""
	if err := h.table.Apply(want); err != nil {
		failure = err.Error()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if tried == h.tried { // else it was for what is wanted no more
		select {
		case <-tried:
		default:
			close(tried)
		}
	}
	if failure == h.failure {
		return
	}
	if h.failure = failure; failure != "" {
		h.log.Error("open connections are not handed over; it is tried again", "error", failure)
	} else {
		h.log.Info("open connections are handed over again")
	}
	signal.Send(h.changed)
}
