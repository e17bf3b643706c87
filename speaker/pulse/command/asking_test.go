package command_test

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/arp"
)

// asking is a client that asks for addresses by ARP again and again, as
// many clients together do.
type asking struct {
	pause    time.Duration // between two questions for the same address
	mu       sync.Mutex
	answered []time.Time
	by       []string     // the MACs that answered
	of       []netip.Addr // what they answered for
}

// asking begins to ask for the address of the lab.
func (l *lab) asking(t *testing.T) *asking { return l.askingFor(t, vip) }

// askingFor begins to ask for these addresses, in turns.
func (l *lab) askingFor(t *testing.T, addresses ...netip.Addr) *asking {
	t.Helper()
	var card *net.Interface
	var conn *arp.Client
	err := l.client.Do(func() (err error) {
		if card, err = net.InterfaceByName("eth0"); err != nil {
			return err
		}
		conn, err = arp.Dial(card)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &asking{pause: every * time.Duration(len(addresses))}
	var ended sync.WaitGroup
	done := make(chan struct{})
	t.Cleanup(func() { close(done); _ = conn.Close(); ended.Wait() })
	ended.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-tick.C:
				_ = conn.Request(addresses[i%len(addresses)]) // errors show as a gap
			}
		}
	})
	ended.Go(func() {
		for {
			packet, frame, err := conn.Read()
			if err != nil {
				return
			}
			// What goes to all is an announcement, not an answer.
			if packet.Operation == arp.OperationReply && slices.Contains(addresses, packet.SenderIP) && bytes.Equal(frame.Destination, card.HardwareAddr) {
				a.mu.Lock()
				a.answered = append(a.answered, time.Now())
				a.by, a.of = append(a.by, packet.SenderHardwareAddr.String()), append(a.of, packet.SenderIP)
				a.mu.Unlock()
			}
		}
	})
	return a
}

// anew forgets the answers of before.
func (a *asking) anew() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered, a.by, a.of = nil, nil, nil
}

// longestGap is the longest time without an answer since the first one, up to
// now.
func (a *asking) longestGap(t *testing.T) time.Duration {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.answered) == 0 {
		t.Fatal("nobody answered")
	}
	var longest time.Duration
	for i, at := range a.answered {
		next := time.Now()
		if i+1 < len(a.answered) {
			next = a.answered[i+1]
		}
		longest = max(longest, next.Sub(at))
	}
	return longest
}

// both is for how long two nodes answered: from the first answer of one to the last of the
// other. 0: the other was silent by then, or one of them is.
func (a *asking) both(one, other *node) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	first, last := slices.Index(a.by, one.mac().String()), -1
	for i, by := range a.by {
		if by == other.mac().String() {
			last = i
		}
	}
	if first < 0 || last < first {
		return 0
	}
	return a.answered[last].Sub(a.answered[first])
}
