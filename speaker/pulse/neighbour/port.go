package neighbour

import (
	"errors"
	"maps"
	"math/rand/v2"
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

const (
	// burst is how many addresses are announced at once. Switches police ARP and neighbour discovery, at a few hundred
	// frames a second, and let bursts of some dozens pass.
	burst = 8
	// firstPace and laterPace bound the time between bursts in the first round, for which clients wait, and in the others.
	firstPace = 2 * time.Millisecond
	laterPace = 80 * time.Millisecond
	// lastRound is the time that the last round has, after which no other begins.
	lastRound = 5 * time.Second
	// tick is the shortest pause.
	tick = time.Millisecond
)

// MaxFrame is the longest frame that is read, in bytes. What asks for an address
// needs a hundred.
const MaxFrame = 1514

// port is one open interface.
type port struct {
	protocol Protocol
	name     string
	index    int
	wire     Wire
	count    *counters
	claims   *claims
	// answers is replaced as a whole and never changed.
	answers atomic.Pointer[Answers]
	// dead: the reader gave up.
	dead atomic.Bool

	done chan struct{} // closed with the port; the announcements end by it
	// Used by describe and answer only, which are called by one goroutine at a time.
	ups     uint64
	last    announcement
	probed  []netip.Addr
	unheard []netip.Addr // of which the wire would not let questions through
	every   map[netip.Addr]time.Duration
	// repeated are the addresses that are announced again, as repeat was told over intervals,
	// which is nil while there are none and repeat does not run.
	repeated  map[netip.Addr]time.Duration
	intervals chan map[netip.Addr]time.Duration
}

// listen opens a wire on the interface and answers from it until closed.
func listen(protocol Protocol, i Interface, count *counters, claims *claims, died func(name string, err error)) (*port, error) {
	wire, err := protocol.Listen(i)
	if err != nil {
		return nil, err
	}
	open := newPort(protocol, i, wire, count, claims)
	go func() {
		if err := open.read(); err != nil {
			open.dead.Store(true)
			died(i.Name, err)
		}
	}()
	return open, nil
}

func newPort(protocol Protocol, i Interface, w Wire, count *counters, claims *claims) *port {
	p := &port{
		protocol: protocol, name: i.Name, index: i.Index, wire: w, count: count, claims: claims,
		done: make(chan struct{}), ups: i.Ups,
	}
	p.answers.Store(NewAnswers(i.MAC))
	return p
}

// close stops answering and announcing. It is called once.
func (p *port) close() {
	p.answers.Store(NewAnswers(MAC{}))
	close(p.done)
	p.count.dropped.Add(p.wire.Dropped())
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

// read answers questions until the socket is closed, and returns nil then.
func (p *port) read() error {
	buffer := make([]byte, MaxFrame)
	for {
		n, _, err := p.wire.ReadFrom(buffer)
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
	found, err := p.protocol.Handle(frame, p.answers.Load())
	if err != nil {
		p.count.parseErrors.Add(1)
		return
	}
	if found.What == Conflict {
		p.count.conflicts.Add(1)
		found.Claim.Interface, found.Claim.Index = p.name, p.index
		p.claims.note(found.Claim)
	}
	if len(found.Reply.Bytes) > 0 && p.send(found.Reply) {
		p.count.answers.Add(1)
	}
}

func (p *port) send(f Frame) bool {
	if _, err := p.wire.WriteTo(f.Bytes, &packet.Addr{HardwareAddr: f.To[:]}); err != nil {
		p.count.sendErrors.Add(1)
		return false
	}
	return true
}

// describe tells the port what its interface is like now. If the MAC changed or
// the interface came up since, everything is announced again. An error says that
// questions would not be heard here, and that nothing is answered until a later
// call returns none.
func (p *port) describe(i Interface) error {
	before := p.answers.Load()
	own := slices.Collect(maps.Keys(before.since))
	changed := before.MAC != i.MAC || p.ups != i.Ups
	if !changed && len(p.unheard) == 0 {
		return nil
	}
	asked := slices.Concat(own, p.probed, p.unheard)
	if err := p.wire.Hear(asked, changed); err != nil {
		p.deaf(asked)
		return err
	}
	p.ups, p.unheard = i.Ups, nil
	if changed {
		p.replace(i.MAC, own, nil)
	}
	return nil
}

// answer makes the port answer for exactly the addresses, and begins to announce
// those that are new; it hears who claims the probed ones, and announces those that have an
// interval again. An error says that it answers for none, since questions would not be heard.
func (p *port) answer(addresses, probed []netip.Addr, every map[netip.Addr]time.Duration) error {
	if len(p.unheard) > 0 {
		return nil // describe has told so, and tries again
	}
	if err := p.wire.Hear(slices.Concat(addresses, probed), false); err != nil {
		p.deaf(slices.Concat(addresses, probed))
		return err
	}
	before := p.answers.Load()
	p.probed, p.every = probed, every
	p.replace(before.MAC, addresses, before.since)
	return nil
}

// deaf stops all answers, since questions about some addresses would not be heard.
func (p *port) deaf(unheard []netip.Addr) {
	p.unheard, p.probed = slices.Clone(unheard), nil
	p.replace(p.answers.Load().MAC, nil, nil)
}

// replace sets the answers. Addresses that are in told keep their announcement;
// the others begin one together.
func (p *port) replace(mac MAC, addresses []netip.Addr, told map[netip.Addr]announcement) {
	next := NewAnswers(mac)
	var fresh []netip.Addr
	for _, a := range addresses {
		since, known := told[a]
		if !known {
			since = p.last + 1
			fresh = append(fresh, a)
		}
		next.since[a] = since
	}
	p.answers.Store(next.Watching(p.probed...))
	if len(fresh) > 0 {
		p.last++
		go p.announce(p.last, fresh)
	}
	p.pace(addresses)
}

// announce sends the frames of one announcement, but only for addresses that are
// still answered for and in no later announcement. The rounds are in different orders: what
// polices them drops the tail of each, which would be the same one.
func (p *port) announce(id announcement, addresses []netip.Addr) {
	begun := time.Now()
	for round, at := range schedule {
		if !p.waits(at - time.Since(begun)) {
			return
		}
		rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
		between := spread(round, len(addresses))
		began := time.Now()
		for i, a := range addresses {
			if pause := time.Duration(i/burst)*between - time.Since(began); i%burst == 0 && pause >= tick && !p.waits(pause) {
				return
			}
			if now := p.answers.Load(); now.since[a] == id {
				p.say(Announcement, now.MAC, a)
			}
		}
	}
}

// spread is the time between the bursts of a round, of so many addresses.
func spread(round, addresses int) time.Duration {
	over, most := lastRound, laterPace
	if round+1 < len(schedule) {
		over = schedule[round+1] - schedule[round]
	}
	if round == 0 {
		most = firstPace
	}
	return min(most, over*burst/time.Duration(max(addresses, 1)))
}

// waits waits, and tells whether the port is open still.
func (p *port) waits(d time.Duration) bool {
	select {
	case <-p.done:
		return false
	case <-time.After(d):
		return true
	}
}

// say sends once what there is to say of an address.
func (p *port) say(what Word, mac MAC, address netip.Addr) {
	frames, err := p.protocol.Frames(what, mac, address)
	if err != nil {
		p.count.sendErrors.Add(1)
		return
	}
	count := &p.count.announcements
	if what == Probe {
		count = &p.count.probes
	}
	for _, frame := range frames {
		if p.send(frame) {
			count.Add(1)
		}
	}
}

// ask sends a question once.
func (p *port) ask(address, from netip.Addr, to MAC) {
	frame, err := p.protocol.Question(p.answers.Load().MAC, address, from, to)
	switch {
	case err != nil:
		p.count.sendErrors.Add(1)
	case p.send(frame):
		p.count.probes.Add(1)
	}
}
