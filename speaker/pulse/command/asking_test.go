package command_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ndp"
	ip6 "golang.org/x/net/ipv6"
)

// asking is a client that asks for addresses by ARP or neighbour solicitations again and again,
// as many clients together do.
type asking struct {
	pause    time.Duration // between two questions for the same address
	mu       sync.Mutex
	answered []time.Time
	by       []string     // the MACs that answered
	of       []netip.Addr // what they answered for
}

// questions are what a client asks who has an address, and hears.
type questions interface {
	ask(a netip.Addr) error
	// hear waits for an answer to one. An address that is not valid is not one: what goes to all is
	// an announcement.
	hear() (a netip.Addr, by net.HardwareAddr, err error)
	Close() error
}

// byARP are those for IPv4.
type byARP struct {
	*arp.Client

	card *net.Interface
}

func (q byARP) ask(a netip.Addr) error { return q.Request(a) }

func (q byARP) hear() (netip.Addr, net.HardwareAddr, error) {
	packet, frame, err := q.Read()
	if err != nil || packet.Operation != arp.OperationReply || !bytes.Equal(frame.Destination, q.card.HardwareAddr) {
		return netip.Addr{}, nil, err
	}
	return packet.SenderIP, packet.SenderHardwareAddr, nil
}

// byNDP are those for IPv6. The socket knows its link by number: the name of one may mean another
// one in the namespace from which it is written to.
type byNDP struct {
	*ip6.PacketConn

	card *net.Interface
}

func newByNDP(over net.PacketConn, card *net.Interface) (q byNDP, err error) {
	q = byNDP{ip6.NewPacketConn(over), card}
	var advertisements ip6.ICMPFilter
	advertisements.SetAll(true)
	advertisements.Accept(ip6.ICMPTypeNeighborAdvertisement)
	const own = 255 // of those that no router has passed on; others are not answered
	return q, errors.Join(q.SetICMPFilter(&advertisements), q.SetMulticastHopLimit(own), q.SetMulticastInterface(card))
}

func (q byNDP) ask(a netip.Addr) error {
	group, err := ndp.SolicitedNodeMulticast(a)
	if err != nil {
		return err
	}
	own := &ndp.LinkLayerAddress{Direction: ndp.Source, Addr: q.card.HardwareAddr}
	message, err := ndp.MarshalMessage(&ndp.NeighborSolicitation{TargetAddress: a, Options: []ndp.Option{own}})
	if err != nil {
		return err
	}
	_, err = q.WriteTo(message, nil, &net.IPAddr{IP: group.AsSlice()})
	return err
}

func (q byNDP) hear() (netip.Addr, net.HardwareAddr, error) {
	b := make([]byte, q.card.MTU)
	n, _, _, err := q.ReadFrom(b)
	if err != nil {
		return netip.Addr{}, nil, err
	}
	message, err := ndp.ParseMessage(b[:n])
	if err != nil {
		return netip.Addr{}, nil, err
	}
	advertisement, is := message.(*ndp.NeighborAdvertisement)
	if !is || !advertisement.Solicited {
		return netip.Addr{}, nil, nil
	}
	for _, option := range advertisement.Options {
		if station, is := option.(*ndp.LinkLayerAddress); is && station.Direction == ndp.Target {
			return advertisement.TargetAddress, station.Addr, nil
		}
	}
	return netip.Addr{}, nil, nil
}

// questions are those of the client, for addresses of the family of its LAN.
func (l *lab) questions(t *testing.T) (q questions) {
	t.Helper()
	err := l.client.Do(func() error {
		card, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		if l.vip.Is4() {
			conn, err := arp.Dial(card)
			q = byARP{conn, card}
			return err
		}
		over, err := net.ListenPacket("ip6:ipv6-icmp", l.host(99).String())
		if err != nil {
			return err
		}
		q, err = newByNDP(over, card)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// asking begins to ask for the address of the lab.
func (l *lab) asking(t *testing.T) *asking { return l.askingFor(t, l.vip) }

// askingFor begins to ask for these addresses, in turns.
func (l *lab) askingFor(t *testing.T, addresses ...netip.Addr) *asking {
	t.Helper()
	q := l.questions(t)
	a := &asking{pause: every * time.Duration(len(addresses))}
	var ended sync.WaitGroup
	done := make(chan struct{})
	t.Cleanup(func() { close(done); _ = q.Close(); ended.Wait() })
	ended.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-tick.C:
				_ = q.ask(addresses[i%len(addresses)]) // errors show as a gap
			}
		}
	})
	ended.Go(func() {
		for {
			of, by, err := q.hear()
			if err != nil {
				select {
				case <-done:
					return
				default:
					continue // a message that cannot be read, or no network for a moment
				}
			}
			if slices.Contains(addresses, of) {
				a.mu.Lock()
				a.answered = append(a.answered, time.Now())
				a.by, a.of = append(a.by, by.String()), append(a.of, of)
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
