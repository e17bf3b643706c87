package arp

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mdlayher/arp"
)

// recorder notes when which address was announced, in the time of the test.
type recorder struct {
	mu    sync.Mutex
	begun time.Time
	sent  map[netip.Addr][]time.Duration // requests
	macs  []MAC
	kinds map[arp.Operation]int
}

func newRecorder() *recorder {
	return &recorder{begun: time.Now(), sent: map[netip.Addr][]time.Duration{}, kinds: map[arp.Operation]int{}}
}

func (r *recorder) WriteTo(frame []byte, _ net.Addr) (int, error) {
	var p arp.Packet
	if err := p.UnmarshalBinary(frame[14:]); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kinds[p.Operation]++
	if p.Operation == arp.OperationRequest {
		r.sent[p.SenderIP] = append(r.sent[p.SenderIP], time.Since(r.begun))
		r.macs = append(r.macs, MAC(p.SenderHardwareAddr))
	}
	return len(frame), nil
}

func (r *recorder) Close() error { return nil }

func (r *recorder) times(a netip.Addr) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent[a])
}

func (r *recorder) wants(t *testing.T, a netip.Addr, want ...time.Duration) {
	t.Helper()
	if got := r.times(a); !slices.Equal(got, want) {
		t.Errorf("%s was announced at %v, want %v", a, got, want)
	}
}

const ms = time.Millisecond

func TestATakenAddressIsAnnouncedOnSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		p := newPort(Interface{MAC: ourMAC}, r, &counters{})
		defer p.close()
		p.answer([]netip.Addr{vip})
		time.Sleep(300 * ms)
		// Another address starts its own announcement and leaves the first alone.
		p.answer([]netip.Addr{vip, other})
		time.Sleep(time.Minute)
		r.wants(t, vip, 0, 100*ms, 500*ms, 1100*ms, 2000*ms, 5000*ms)
		r.wants(t, other, 300*ms, 400*ms, 800*ms, 1400*ms, 2300*ms, 5300*ms)
		if r.kinds[arp.OperationRequest] != 12 || r.kinds[arp.OperationReply] != 12 {
			t.Errorf("sent %v, want as many replies as requests", r.kinds)
		}
		if sent := p.count.gratuitous.Load(); sent != 24 {
			t.Errorf("counted %d gratuitous frames, want 24", sent)
		}
	})
}

func TestALostAddressIsAnnouncedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		p := newPort(Interface{MAC: ourMAC}, r, &counters{})
		defer p.close()
		p.answer([]netip.Addr{vip, other})
		time.Sleep(300 * ms)
		p.answer([]netip.Addr{other})
		time.Sleep(100 * ms)
		// Taken again: the schedule starts anew, and the old one stays dead.
		p.answer([]netip.Addr{vip, other})
		time.Sleep(time.Minute)
		r.wants(t, vip, 0, 100*ms, 400*ms, 500*ms, 900*ms, 1500*ms, 2400*ms, 5400*ms)
		r.wants(t, other, 0, 100*ms, 500*ms, 1100*ms, 2000*ms, 5000*ms)
	})
}

func TestAChangeOfTheLinkAnnouncesAgain(t *testing.T) {
	for name, change := range map[string]Interface{
		"MAC":     {MAC: clientMAC},
		"link up": {MAC: ourMAC, Ups: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRecorder()
				p := newPort(Interface{MAC: ourMAC}, r, &counters{})
				defer p.close()
				p.answer([]netip.Addr{vip})
				time.Sleep(10 * time.Second)
				p.describe(change)
				p.describe(change) // says nothing new
				p.answer([]netip.Addr{vip})
				time.Sleep(time.Minute)
				r.wants(t, vip, 0, 100*ms, 500*ms, 1100*ms, 2000*ms, 5000*ms,
					10*time.Second, 10100*ms, 10500*ms, 11100*ms, 12*time.Second, 15*time.Second)
				for i, mac := range r.macs {
					if want := []MAC{ourMAC, change.MAC}[i/len(schedule)]; mac != want {
						t.Errorf("announcement %d says %s, want %s", i, mac, want)
					}
				}
			})
		})
	}
}

func TestAClosedPortIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		p := newPort(Interface{MAC: ourMAC}, r, &counters{})
		p.answer([]netip.Addr{vip})
		time.Sleep(50 * ms)
		p.close()
		time.Sleep(time.Minute)
		r.wants(t, vip, 0)
		p.receive(frame(t, arp.OperationRequest, clientMAC, client, vip))
		if n := p.count.answers.Load(); n != 0 {
			t.Errorf("%d answers after closing", n)
		}
	})
}
