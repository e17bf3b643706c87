package hello

import (
	"bytes"
	"container/heap"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

const (
	testInterval   = 100 * time.Millisecond
	testMultiplier = 5
	testDetect     = testInterval * testMultiplier
	testDelay      = time.Millisecond // one way
)

// world runs machines on a network with a clock of its own: nothing sleeps,
// and the same seed gives the same history.
type world struct {
	now     time.Time
	every   time.Duration // interval, and so on
	times   int
	wakes   wakes
	random  *rand.Rand
	hosts   []*host
	flying  []flight // sorted by arrival, as the delay is constant
	cut     map[[2]int]bool
	lose    func(from, to int) bool
	left    func(from, to int, datagram []byte) // nil, or is told of each that is sent
	sent    func(from int, datagram []byte)     // a datagram is about to leave, or to be lost
	arrived func(from, to int, datagram []byte) // a datagram is about to be heard
	stepped func()                              // time went on or something arrived
}

type host struct {
	index int
	name  string
	addr  netip.Addr
	want  Wanted
	state *machine             // nil while the process is down
	due   time.Time            // of the next hello
	wakes time.Time            // as Mesh's timer
	late  func() time.Duration // by how much the timer is late; nil: never
	log   bytes.Buffer
}

type flight struct {
	at       time.Time
	from, to int
	datagram []byte
}

func newWorld(size int, seed uint64) *world {
	w := &world{
		now:     time.Unix(1_700_000_000, 0),
		every:   testInterval,
		times:   testMultiplier,
		random:  rand.New(rand.NewPCG(seed, 1)),
		cut:     map[[2]int]bool{},
		lose:    func(int, int) bool { return false },
		sent:    func(int, []byte) {},
		arrived: func(int, int, []byte) {},
		stepped: func() {},
	}
	for i := range size {
		w.hosts = append(w.hosts, &host{
			index: i,
			name:  fmt.Sprintf("node-%d", i),
			addr:  netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}),
		})
	}
	for _, h := range w.hosts {
		h.want = Wanted{Key: testKey, Serving: true, Peers: map[string]Peer{}}
		for _, o := range w.hosts {
			if o != h {
				h.want.Peers[o.name] = Peer{Addrs: []netip.Addr{o.addr}}
			}
		}
	}
	return w
}

// start begins a new process on a host.
func (w *world) start(i int) {
	h := w.hosts[i]
	cfg := Config{
		Node: h.name, Port: 7475, Interval: w.every, Multiplier: w.times,
		Log: slog.New(slog.NewTextHandler(&h.log, nil)),
	}
	h.state = newMachine(cfg, func() uint64 { return max(w.random.Uint64(), 1) })
	h.due = w.now
	w.rouse(h, w.now)
	h.state.listen(w.now)
	h.state.set(w.now, h.want)
}

// set changes what a host wants, as Mesh.Set does.
func (w *world) set(i int, change func(*Wanted)) {
	h := w.hosts[i]
	change(&h.want)
	if h.state.set(w.now, h.want) {
		h.due = w.now
		w.wake(i)
	} else if due := h.state.claimsDue(); !due.IsZero() {
		w.rouse(h, later(due, w.now))
	}
}

func (w *world) send(from int, out outgoing) {
	to := slices.SortedFunc(slices.Values(out.to), netip.Addr.Compare) // the same in each run
	for _, datagram := range out.datagrams {
		w.sent(from, datagram)
		for _, a := range to {
			b := a.As4()
			to := int(b[2])<<8 | int(b[3])
			if w.left != nil {
				w.left(from, to, datagram)
			}
			if w.cut[[2]int{from, to}] || w.lose(from, to) {
				continue
			}
			w.flying = append(w.flying, flight{w.now.Add(testDelay), from, to, datagram})
		}
	}
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); w.step(end); {
	}
}

// step goes on to the next event, or to end if there is none before.
func (w *world) step(end time.Time) bool {
	at, who := end, -1
	for len(w.wakes) > 0 {
		first := w.wakes[0]
		if first.host.state == nil || !first.at.Equal(first.host.wakes) {
			heap.Pop(&w.wakes) // it wakes at another time
			continue
		}
		if first.at.Before(end) {
			at, who = first.at, first.host.index
		}
		break
	}
	if len(w.flying) > 0 && !w.flying[0].at.After(at) {
		f := w.flying[0]
		w.flying = w.flying[1:]
		w.now = f.at
		w.deliver(f.from, f.to, f.datagram)
		w.stepped()
		return true
	}
	w.now = at
	if who < 0 {
		w.stepped()
		return false
	}
	w.wake(who)
	w.stepped()
	return true
}

func (w *world) wake(i int) {
	h := w.hosts[i]
	h.state.check(w.now)
	if h.state.isDue(w.now, h.due) {
		w.send(i, h.state.hellos(w.now))
		h.state.left(w.now)
		h.due = w.now.Add(jitter(h.state.interval, w.random.Int64N))
	}
	for _, out := range h.state.rest(w.now) {
		w.send(i, out)
	}
	at := h.state.next(h.due)
	if h.late != nil {
		at = at.Add(h.late())
	}
	w.rouse(h, at)
}

// goodbye is one of those that a host says as its process ends.
func (w *world) goodbye(i int, hold time.Duration) {
	h := w.hosts[i].state
	h.part(w.now, hold)
	w.send(i, h.hellos(w.now))
	for _, out := range h.rest(w.now) {
		w.send(i, out)
	}
}

// rouse makes a host wake then, and not when it was to before.
func (w *world) rouse(h *host, at time.Time) {
	h.wakes = at
	heap.Push(&w.wakes, waking{at, h})
}

// wakes is a heap, the soonest first.
type wakes []waking

type waking struct {
	at   time.Time
	host *host
}

func (s *wakes) Len() int           { return len(*s) }
func (s *wakes) Less(i, j int) bool { return (*s)[i].at.Before((*s)[j].at) }
func (s *wakes) Swap(i, j int)      { (*s)[i], (*s)[j] = (*s)[j], (*s)[i] }
func (s *wakes) Push(x any)         { *s = append(*s, x.(waking)) }

func (s *wakes) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

func (w *world) deliver(from, to int, datagram []byte) {
	h := w.hosts[to]
	if h.state == nil {
		return
	}
	w.arrived(from, to, datagram)
	w.send(to, h.state.hear(w.now, datagram, netip.AddrPortFrom(w.hosts[from].addr, 7475)))
	if h.state.isPressing() {
		at := w.now
		if h.late != nil { // a busy machine is late whatever wakes it
			at = at.Add(h.late())
		}
		if at.Before(h.wakes) {
			w.rouse(h, at)
		}
	}
}

// member is how one host sees another.
func (w *world) member(at, of int) (Member, bool) {
	m, alive := w.hosts[at].state.view(w.now).Alive[w.hosts[of].name]
	return m, alive
}

func (w *world) alive(at, of int) bool {
	if at == of {
		return true
	}
	p := w.hosts[at].state.peers[w.hosts[of].name]
	return p != nil && p.alive
}

// expect fails the test unless each of the hosts that run sees exactly those.
func (w *world) expect(t testing.TB, when string, alive ...int) {
	t.Helper()
	for _, at := range w.hosts {
		if at.state == nil {
			continue
		}
		want := map[int]bool{at.index: true}
		for _, i := range alive {
			want[i] = true
		}
		for _, of := range w.hosts {
			if got := w.alive(at.index, of.index); got != want[of.index] {
				t.Errorf("%s: %s counts %s as alive: %v, want %v", when, at.name, of.name, got, want[of.index])
			}
		}
	}
}

// started gives a world of running hosts that know each other.
func started(t testing.TB, size int, seed uint64) *world {
	t.Helper()
	w := newWorld(size, seed)
	var all []int
	for i := range size {
		w.start(i)
		all = append(all, i)
	}
	w.run(2 * testDetect)
	w.expect(t, "after the start", all...)
	return w
}
