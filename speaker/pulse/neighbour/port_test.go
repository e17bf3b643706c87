package neighbour

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/internal/testenv/testlog"
)

var (
	ourMAC     = MAC{2, 0, 0, 0, 0, 1}
	anotherMAC = MAC{2, 0, 0, 0, 0, 2}
	vip        = netip.MustParseAddr("192.0.2.10")
	other      = netip.MustParseAddr("2001:db8::11")
)

// plain is a protocol whose frames are a MAC and an address: announced twice
// over, and answered whoever sends one.
type plain struct{ wire *recorder }

func (plain) String() string                   { return "plain" }
func (p plain) Listen(Interface) (Wire, error) { return p.wire, nil }

func (plain) Handle(frame []byte, ours *Answers) (Finding, error) {
	address, ok := netip.AddrFromSlice(frame[6:])
	switch {
	case !ok:
		return Finding{}, errors.New("no address")
	case ours.Probes(address):
		return Finding{What: Conflict, Claim: Claim{Address: address, Station: MAC(frame[:6])}}, nil
	case !ours.Includes(address):
		return Finding{}, nil
	}
	return Finding{What: Asked, Reply: Frame{To: MAC(frame[:6]), Bytes: frame}}, nil
}

func (plain) Question(MAC, netip.Addr, netip.Addr, MAC) (Frame, error) { return Frame{}, nil }

func (plain) Frames(_ Word, mac MAC, address netip.Addr) ([]Frame, error) {
	f := Frame{To: Broadcast(), Bytes: slices.Concat(mac[:], address.AsSlice())}
	return []Frame{f, f}, nil
}

// recorder is a wire that notes when which address was announced, in the time of
// the test, and of which addresses questions are heard.
type recorder struct {
	mu     sync.Mutex
	begun  time.Time
	sent   map[netip.Addr][]time.Duration
	macs   []MAC
	heard  []netip.Addr
	afresh int
	deaf   error  // what Hear returns
	missed uint64 // what Dropped returns
	closed chan struct{}
}

func newRecorder() *recorder {
	return &recorder{begun: time.Now(), sent: map[netip.Addr][]time.Duration{}, closed: make(chan struct{})}
}

func (r *recorder) ReadFrom([]byte) (int, net.Addr, error) {
	<-r.closed
	return 0, nil, net.ErrClosed
}

func (r *recorder) WriteTo(frame []byte, _ net.Addr) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	address, _ := netip.AddrFromSlice(frame[6:])
	r.sent[address] = append(r.sent[address], time.Since(r.begun))
	r.macs = append(r.macs, MAC(frame[:6]))
	return len(frame), nil
}

func (r *recorder) Hear(addresses []netip.Addr, afresh bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deaf != nil {
		return r.deaf
	}
	r.heard = slices.Clone(addresses)
	if afresh {
		r.afresh++
	}
	return nil
}

func (r *recorder) Dropped() uint64 { return r.missed }
func (r *recorder) Gone() bool      { return false }

func (r *recorder) Close() error {
	close(r.closed)
	return nil
}

// wants checks when the address was announced, each time by two frames.
func (r *recorder) wants(t *testing.T, a netip.Addr, want ...time.Duration) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var twice []time.Duration
	for _, at := range want {
		twice = append(twice, at, at)
	}
	if !slices.Equal(r.sent[a], twice) {
		t.Errorf("%s was announced at %v, want %v", a, r.sent[a], twice)
	}
}

// open makes a port on the recorder.
func (r *recorder) open() *port {
	return newPort(plain{r}, Interface{MAC: ourMAC}, r, &counters{}, &claims{})
}

// answer makes the port answer for the addresses.
func answer(t *testing.T, p *port, addresses ...netip.Addr) {
	t.Helper()
	if err := p.answer(addresses, nil, nil); err != nil {
		t.Fatal(err)
	}
}

const ms = time.Millisecond

func TestATakenAddressIsAnnouncedOnSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		p := r.open()
		defer p.close()
		answer(t, p, vip)
		time.Sleep(300 * ms)
		// Another address starts its own announcement and leaves the first alone.
		answer(t, p, vip, other)
		time.Sleep(time.Minute)
		r.wants(t, vip, 0, 100*ms, 500*ms, 1100*ms, 2000*ms, 5000*ms)
		r.wants(t, other, 300*ms, 400*ms, 800*ms, 1400*ms, 2300*ms, 5300*ms)
		if sent := p.count.announcements.Load(); sent != 24 {
			t.Errorf("counted %d frames of announcements, want 24", sent)
		}
	})
}

// TestManyAddressesArePaced: each round is spread over its time, and has another order.
func TestManyAddressesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		p := r.open()
		defer p.close()
		var many []netip.Addr
		for i := range 80 {
			many = append(many, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
		}
		answer(t, p, many...)
		time.Sleep(time.Minute)
		synctest.Wait()
		var orders [len(schedule)][]netip.Addr
		var span [len(schedule)][2]time.Duration
		sent := map[int]int{} // by tenth of a second
		for _, a := range many {
			if len(r.sent[a]) != 2*len(schedule) {
				t.Fatalf("%s was announced %d times", a, len(r.sent[a]))
			}
			for round := range schedule {
				at := r.sent[a][2*round]
				sent[int(at/(100*ms))] += 2
				span[round][1] = max(span[round][1], at)
				orders[round] = append(orders[round], a)
			}
		}
		for round, begins := range schedule {
			slices.SortStableFunc(orders[round], func(a, b netip.Addr) int { return int(r.sent[a][2*round] - r.sent[b][2*round]) })
			for before := range round {
				if slices.Equal(orders[before], orders[round]) {
					t.Errorf("rounds %d and %d have one order", before, round)
				}
			}
			takes := span[round][1] - begins
			switch {
			case round == 0 && takes != 9*firstPace:
				t.Errorf("the first round takes %v", takes)
			case round > 0 && (takes < 300*ms || round+1 < len(schedule) && begins+takes >= schedule[round+1]):
				t.Errorf("round %d takes %v", round, takes)
			}
		}
		for tenth, frames := range sent {
			if tenth > 0 && frames > 2*burst*4 {
				t.Errorf("%d frames from %v on", frames, time.Duration(tenth)*100*ms)
			}
		}
	})
}

func TestALostAddressIsAnnouncedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		p := r.open()
		defer p.close()
		answer(t, p, vip, other)
		time.Sleep(300 * ms)
		answer(t, p, other)
		time.Sleep(100 * ms)
		// Taken again: the schedule starts anew, and the old one stays dead.
		answer(t, p, vip, other)
		time.Sleep(time.Minute)
		r.wants(t, vip, 0, 100*ms, 400*ms, 500*ms, 900*ms, 1500*ms, 2400*ms, 5400*ms)
		r.wants(t, other, 0, 100*ms, 500*ms, 1100*ms, 2000*ms, 5000*ms)
	})
}

func TestAChangeOfTheLinkAnnouncesAgain(t *testing.T) {
	for name, change := range map[string]Interface{
		"MAC":     {MAC: anotherMAC},
		"link up": {MAC: ourMAC, Ups: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRecorder()
				p := r.open()
				defer p.close()
				answer(t, p, vip)
				time.Sleep(10 * time.Second)
				for range 2 { // the second says nothing new
					if err := p.describe(change); err != nil {
						t.Fatal(err)
					}
				}
				answer(t, p, vip)
				time.Sleep(time.Minute)
				r.wants(t, vip, 0, 100*ms, 500*ms, 1100*ms, 2000*ms, 5000*ms,
					10*time.Second, 10100*ms, 10500*ms, 11100*ms, 12*time.Second, 15*time.Second)
				for i, mac := range r.macs {
					if want := []MAC{ourMAC, change.MAC}[i/2/len(schedule)]; mac != want {
						t.Errorf("frame %d says %s, want %s", i, mac, want)
					}
				}
				if r.afresh != 1 || !slices.Equal(r.heard, []netip.Addr{vip}) {
					t.Errorf("made to hear of %v, %d times afresh", r.heard, r.afresh)
				}
			})
		})
	}
}

func TestAClosedPortIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		p := r.open()
		answer(t, p, vip)
		time.Sleep(50 * ms)
		p.close()
		time.Sleep(time.Minute)
		r.wants(t, vip, 0)
		p.receive(slices.Concat(anotherMAC[:], vip.AsSlice()))
		if n := p.count.answers.Load(); n != 0 {
			t.Errorf("%d answers after closing", n)
		}
	})
}

// Where questions are not heard nothing is answered: another node must take over,
// and that must not go back and forth with every attempt.
func TestAnInterfaceThatHearsNothingAnswersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		responder := New(plain{r}, testlog.New(t))
		defer responder.Close()
		eth0 := []Interface{{Index: 2, Name: "eth0", MAC: ourMAC}}
		open := func(when string, well bool) {
			t.Helper()
			if failed := responder.Open(eth0); (failed[2] == nil) != well {
				t.Errorf("%s: opened with %v", when, failed)
			}
		}
		open("at first", true)
		responder.Answer(map[int][]netip.Addr{2: {vip}}, nil, nil)

		r.deaf = errors.New("no room for another group")
		responder.Answer(map[int][]netip.Addr{2: {vip, other}}, nil, nil)
		select {
		case <-responder.Broken():
		default:
			t.Error("nobody was told")
		}
		asks := slices.Concat(anotherMAC[:], vip.AsSlice())
		responder.ports[2].receive(asks)
		for range 2 {
			open("while nothing is heard", false)
			responder.Answer(nil, nil, nil) // as for an interface that is not in place
		}
		if n := responder.Stats().Answers; n != 0 {
			t.Errorf("%d answers by an interface that hears nothing", n)
		}
		r.deaf = nil
		open("in the end", true)
		responder.Answer(map[int][]netip.Addr{2: {vip, other}}, nil, nil)
		responder.ports[2].receive(asks)
		if n := responder.Stats().Answers; n != 1 {
			t.Errorf("%d answers, want 1", n)
		}
	})
}

// TestClaimsAreToldOnce: a claim that is repeated before it is taken is told once, those of
// one station do not crowd out all others without bound, and the wire hears of what is probed.
func TestClaimsAreToldOnce(t *testing.T) {
	r := newRecorder()
	p := r.open()
	defer p.close()
	p.claims.news = make(chan struct{}, 1)
	if err := p.answer([]netip.Addr{vip}, []netip.Addr{other}, nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(r.heard, other) || !slices.Contains(r.heard, vip) {
		t.Errorf("hears of %v", r.heard)
	}
	claim := slices.Concat(anotherMAC[:], other.AsSlice())
	p.receive(claim)
	p.receive(claim)
	select {
	case <-p.claims.news:
	default:
		t.Error("nobody is told that there is a claim")
	}
	if all := p.claims.take(); len(all) != 1 || all[0].Address != other || all[0].Station != anotherMAC {
		t.Errorf("claims %v", all)
	}
	if n := p.count.conflicts.Load(); n != 2 {
		t.Errorf("counted %d, want both", n)
	}
	for i := range 2 * maxClaims {
		p.receive(slices.Concat([]byte{2, 0, 0, 0, byte(i >> 8), byte(i)}, other.AsSlice()))
	}
	if all := p.claims.take(); len(all) != maxClaims {
		t.Errorf("%d claims wait, want %d at most", len(all), maxClaims)
	}
	if all := p.claims.take(); len(all) != 0 {
		t.Errorf("%d claims were taken twice", len(all))
	}
}

// What an interface missed stays counted when it is closed, and is counted once.
func TestWhatWasMissedStaysCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		responder := New(plain{r}, testlog.New(t))
		if failed := responder.Open([]Interface{{Index: 2, Name: "eth0", MAC: ourMAC}}); len(failed) > 0 {
			t.Fatal(failed)
		}
		r.missed = 3
		open := responder.Stats().Dropped
		responder.Close()
		if closed := responder.Stats().Dropped; open != 3 || closed != 3 {
			t.Errorf("counted %d, and %d after it was closed, want 3", open, closed)
		}
	})
}
