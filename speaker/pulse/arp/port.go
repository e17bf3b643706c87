package arp

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
)

// announcement numbers the announcements of a port. An address remembers the
// one that it was last told of in, so that an older one leaves it alone.
type announcement uint64

// schedule says when, after an address was taken, it is announced: at once,
// then as often as it takes to get past a neighbour that believes no second
// change within a second, or missed a frame in the turmoil of a takeover.
var schedule = [...]time.Duration{
	0,
	100 * time.Millisecond,
	500 * time.Millisecond,
	1100 * time.Millisecond,
	2 * time.Second,
	5 * time.Second,
}

// wire is what frames are put on. packet.Conn is one.
type wire interface {
	WriteTo(frame []byte, to net.Addr) (int, error)
	Close() error
}

// port is the open socket of one interface.
type port struct {
	wire  wire
	count *counters
	// answers is replaced as a whole and never changed.
	answers atomic.Pointer[answers]
	// dead: the reader gave up.
	dead atomic.Bool

	done chan struct{} // closed with the port; the announcements end by it
	// Used by describe and answer only, which are called by one goroutine at a time.
	ups  uint64
	last announcement
}

// listen opens a socket on the interface and answers from it until closed.
func listen(i Interface, count *counters, died func(name string, err error)) (*port, error) {
	program, err := filter()
	if err != nil {
		return nil, fmt.Errorf("assemble the filter: %w", err)
	}
	conn, err := packet.Listen(&net.Interface{Index: i.Index, Name: i.Name}, packet.Raw, unix.ETH_P_ARP,
		&packet.Config{Filter: program})
	if err != nil {
		return nil, err
	}
	open := newPort(i, conn, count)
	go func() {
		if err := open.read(conn); err != nil {
			open.dead.Store(true)
			died(i.Name, err)
		}
	}()
	return open, nil
}

func newPort(i Interface, w wire, count *counters) *port {
	p := &port{wire: w, count: count, done: make(chan struct{}), ups: i.Ups}
	p.answers.Store(&answers{mac: i.MAC})
	return p
}

// close stops answering and announcing. It is called once.
func (p *port) close() {
	p.answers.Store(&answers{})
	close(p.done)
	_ = p.wire.Close() // the reader ends by it; there is nothing to do about an error
}

func (p *port) closed() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// read answers requests until the socket is closed, and returns nil then.
func (p *port) read(conn *packet.Conn) error {
	buffer := make([]byte, snapLength)
	for {
		n, _, err := conn.ReadFrom(buffer)
		switch {
		case err == nil:
			p.receive(buffer[:n])
		case p.closed():
			return nil
		case errors.Is(err, unix.ENETDOWN):
			// The interface went down. The socket tells so once, and works on
			// when it comes up again.
		default:
			return err
		}
	}
}

// receive deals with one frame.
func (p *port) receive(frame []byte) {
	reply, to, what, err := handle(frame, p.answers.Load())
	switch {
	case err != nil:
		p.count.parseErrors.Add(1)
	case what == conflict:
		p.count.conflicts.Add(1)
	case what == asked && p.send(reply, to):
		p.count.answers.Add(1)
	}
}

func (p *port) send(frame []byte, to MAC) bool {
	if _, err := p.wire.WriteTo(frame, &packet.Addr{HardwareAddr: to[:]}); err != nil {
		p.count.sendErrors.Add(1)
		return false
	}
	return true
}

// describe tells the port what its interface is like now. If the MAC changed or
// the interface came up since, everything is announced again.
func (p *port) describe(i Interface) {
	before := p.answers.Load()
	if before.mac == i.MAC && p.ups == i.Ups {
		return
	}
	p.ups = i.Ups
	p.replace(i.MAC, slices.Collect(maps.Keys(before.since)), nil)
}

// answer makes the port answer for exactly the addresses, and begins to
// announce those that are new.
func (p *port) answer(addresses []netip.Addr) {
	before := p.answers.Load()
	p.replace(before.mac, addresses, before.since)
}

// replace sets the answers. Addresses that are in told keep their announcement;
// the others begin one together.
func (p *port) replace(mac MAC, addresses []netip.Addr, told map[netip.Addr]announcement) {
	next := &answers{mac: mac, since: make(map[netip.Addr]announcement, len(addresses))}
	var fresh []netip.Addr
	for _, a := range addresses {
		since, known := told[a]
		if !known {
			since = p.last + 1
			fresh = append(fresh, a)
		}
		next.since[a] = since
	}
	p.answers.Store(next)
	if len(fresh) > 0 {
		p.last++
		go p.announce(p.last, fresh)
	}
}

// announce sends the gratuitous requests and replies of one announcement, but
// only for addresses that are still answered for and in no later announcement.
func (p *port) announce(id announcement, addresses []netip.Addr) {
	begun := time.Now()
	for _, at := range schedule {
		select {
		case <-p.done:
			return
		case <-time.After(at - time.Since(begun)):
		}
		now := p.answers.Load()
		for _, a := range addresses {
			if now.since[a] == id {
				p.announceOnce(now.mac, a)
			}
		}
	}
}

func (p *port) announceOnce(mac MAC, address netip.Addr) {
	frames, err := gratuitous(mac, address)
	if err != nil {
		p.count.sendErrors.Add(1)
		return
	}
	for _, frame := range frames {
		if p.send(frame, broadcast) {
			p.count.gratuitous.Add(1)
		}
	}
}
