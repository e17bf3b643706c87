package neighbour_test

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/arp"
	"fairlead.dev/fairlead/speaker/pulse/ndp"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// protocol is one of the two, and addresses to try it with.
type protocol struct {
	new                   func(*slog.Logger) *neighbour.Responder
	etherType             uint16
	vip, another          netip.Addr
	first, second, client netip.Prefix // hosts, with their subnet
}

var (
	overARP = protocol{
		arp.New, unix.ETH_P_ARP,
		netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11"),
		netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("192.0.2.2/24"), netip.MustParsePrefix("192.0.2.99/24"),
	}
	overNDP = protocol{
		ndp.New, unix.ETH_P_IPV6,
		netip.MustParseAddr("2001:db8::1:10"), netip.MustParseAddr("2001:db8::1:11"),
		netip.MustParsePrefix("2001:db8::1/64"), netip.MustParsePrefix("2001:db8::2/64"), netip.MustParsePrefix("2001:db8::99/64"),
	}
)

// overBoth runs a test over each protocol.
func overBoth(t *testing.T, test func(t *testing.T, p protocol)) {
	t.Helper()
	for name, p := range map[string]protocol{"ARP": overARP, "NDP": overNDP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// station is a host on a segment with a responder on eth0.
type station struct {
	*linkstest.Host
	t         *testing.T
	plug      string
	responder *neighbour.Responder
}

func (p protocol) station(t *testing.T, s *linkstest.Segment, at netip.Prefix) *station {
	t.Helper()
	st := &station{Host: linkstest.NewHost(t), t: t, responder: p.new(testlog.New(t))}
	st.plug = s.Attach(st.Host, "eth0", at.String())
	t.Cleanup(st.responder.Close)
	return st
}

// asker attaches a client.
func (p protocol) asker(t *testing.T, s *linkstest.Segment) *linkstest.Host {
	t.Helper()
	client := linkstest.NewHost(t)
	s.Attach(client, "eth0", p.client.String())
	return client
}

// open tells the responder of the links as they are.
func (s *station) open(ups uint64, links ...string) map[int]error {
	s.t.Helper()
	var all []neighbour.Interface
	for _, name := range links {
		l := s.Link(name).Attrs()
		all = append(all, neighbour.Interface{Index: l.Index, Name: name, MAC: neighbour.MAC(l.HardwareAddr), Ups: ups})
	}
	return s.openAs(all...)
}

func (s *station) openAs(all ...neighbour.Interface) map[int]error {
	s.t.Helper()
	var failed map[int]error
	if err := s.Do(func() error { failed = s.responder.Open(all); return nil }); err != nil {
		s.t.Fatal(err)
	}
	return failed
}

// must fails the test if an interface was not opened.
func must(t *testing.T, failed map[int]error) {
	t.Helper()
	if len(failed) > 0 {
		t.Fatal(failed)
	}
}

// answer makes the responder answer for the addresses on a link, and on no other.
func (s *station) answer(link string, addresses ...netip.Addr) {
	s.t.Helper()
	index := s.Link(link).Attrs().Index
	if err := s.Do(func() error { s.responder.Answer(map[int][]netip.Addr{index: addresses}, nil, nil); return nil }); err != nil {
		s.t.Fatal(err)
	}
}

// resolve makes the client's kernel ask for the address again and again, and waits
// for what it learns: nil if nothing within the time.
func resolve(t *testing.T, client *linkstest.Host, a netip.Addr, within time.Duration) net.HardwareAddr {
	t.Helper()
	var mac net.HardwareAddr
	for end := time.Now().Add(within); mac == nil && time.Until(end) > 0; {
		client.Ask(a) // the kernel asks three times, once a second
		mac = await(t, client, a, min(time.Until(end), 3*time.Second), func(mac net.HardwareAddr) bool { return mac != nil })
	}
	return mac
}

// resolves fails the test unless the client's kernel, which is to know nothing of
// the address, finds it at the station.
func resolves(t *testing.T, client *linkstest.Host, a netip.Addr, at *station, when string) {
	t.Helper()
	client.Forget("eth0", a)
	if mac, want := resolve(t, client, a, soon), at.MAC("eth0"); !bytes.Equal(mac, want) {
		t.Fatalf("%s: %s was resolved to %s, want %s", when, a, mac, want)
	}
}

// await waits until the client's kernel knows the address under a MAC of which
// the condition is true; it returns what it knows at last.
func await(t *testing.T, client *linkstest.Host, a netip.Addr, within time.Duration, is func(net.HardwareAddr) bool) net.HardwareAddr {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		mac := client.Neighbour("eth0", a)
		if is(mac) || time.Now().After(deadline) {
			return mac
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// until waits for what is bound to happen.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// soon is more than an answer ever takes; never is enough to see that none comes.
const (
	soon  = time.Minute
	never = 300 * time.Millisecond
)

func TestAKernelResolvesOurAddressesOnly(t *testing.T) {
	overBoth(t, func(t *testing.T, p protocol) {
		segment := linkstest.NewSegment(t)
		st, client := p.station(t, segment, p.first), p.asker(t, segment)
		must(t, st.open(1, "eth0"))
		if mac := resolve(t, client, p.vip, never); mac != nil {
			t.Fatalf("answered by %s before it was ours", mac)
		}
		st.answer("eth0", p.vip)
		resolves(t, client, p.vip, st, "when it was ours")
		if mac := resolve(t, client, p.another, never); mac != nil {
			t.Fatalf("%s is not ours, and was answered by %s", p.another, mac)
		}
		// The announcement may have been quicker; now the client has to ask.
		until(t, "an answer is counted", func() bool {
			resolves(t, client, p.vip, st, "asked anew")
			return st.responder.Stats().Answers > 0
		})
		st.answer("eth0")
		client.Forget("eth0", p.vip)
		if mac := resolve(t, client, p.vip, never); mac != nil {
			t.Fatalf("answered by %s after it was lost", mac)
		}
		// Our own kernel's questions are nobody's conflict, and nothing was malformed.
		if s := st.responder.Stats(); s.Conflicts != 0 || s.ParseErrors != 0 || s.SendErrors != 0 {
			t.Errorf("counted %+v", s)
		}
	})
}

// probe makes the client's kernel ask the station under which it knows the address, and no
// other one, whether it is still there.
func probe(t *testing.T, client *linkstest.Host, a netip.Addr) {
	t.Helper()
	err := client.Netlink.NeighSet(&netlink.Neigh{
		LinkIndex: client.Link("eth0").Attrs().Index, IP: a.AsSlice(), HardwareAddr: client.Neighbour("eth0", a), State: netlink.NUD_PROBE,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A neighbour that has not heard from an address for a while asks the station that
// it knows, before it asks everybody.
func TestAProbeIsAnswered(t *testing.T) {
	overBoth(t, func(t *testing.T, p protocol) {
		segment := linkstest.NewSegment(t)
		st, client := p.station(t, segment, p.first), p.asker(t, segment)
		must(t, st.open(1, "eth0"))
		st.answer("eth0", p.vip)
		resolves(t, client, p.vip, st, "at first")
		for range 5 {
			before := st.responder.Stats().Answers
			probe(t, client, p.vip)
			until(t, "the kernel has confirmed the address", func() bool { return client.Reachable("eth0", p.vip) })
			// An answer is counted when it was sent: the kernel may be quicker.
			until(t, "who confirmed it counts the answer", func() bool { return st.responder.Stats().Answers > before })
		}
	})
}

func TestATakeoverMovesTheNeighbour(t *testing.T) {
	overBoth(t, func(t *testing.T, p protocol) {
		segment := linkstest.NewSegment(t)
		first, second, client := p.station(t, segment, p.first), p.station(t, segment, p.second), p.asker(t, segment)
		must(t, first.open(1, "eth0"))
		must(t, second.open(1, "eth0"))
		first.answer("eth0", p.vip)
		resolves(t, client, p.vip, first, "at first")
		second.answer("eth0", p.vip) // and the first goes on: the newer claim must win
		begun, want := time.Now(), second.MAC("eth0")
		mac := await(t, client, p.vip, soon, func(mac net.HardwareAddr) bool { return bytes.Equal(mac, want) })
		if !bytes.Equal(mac, want) {
			t.Fatalf("the neighbour is still %s, want %s", mac, want)
		}
		t.Logf("the client's neighbour entry moved after %v", time.Since(begun).Round(100*time.Microsecond))
		// The first has seen that another one claims its address.
		until(t, "the first counts a conflict", func() bool { return first.responder.Stats().Conflicts > 0 })
	})
}

func TestANewMACIsAnsweredAndAnnounced(t *testing.T) {
	overBoth(t, func(t *testing.T, p protocol) {
		segment := linkstest.NewSegment(t)
		st, client := p.station(t, segment, p.first), p.asker(t, segment)
		must(t, st.open(1, "eth0"))
		st.answer("eth0", p.vip)
		resolves(t, client, p.vip, st, "at first")
		mac := net.HardwareAddr{2, 0, 0, 0, 7, 7}
		if err := st.Netlink.LinkSetHardwareAddr(st.Link("eth0"), mac); err != nil {
			t.Fatal(err)
		}
		must(t, st.open(1, "eth0"))
		got := await(t, client, p.vip, soon, func(m net.HardwareAddr) bool { return bytes.Equal(m, mac) })
		if !bytes.Equal(got, mac) {
			t.Fatalf("announced as %s, want %s", got, mac)
		}
		resolves(t, client, p.vip, st, "with another MAC")
	})
}

func TestAnInterfaceThatWentDownAnswersWhenItIsBack(t *testing.T) {
	overBoth(t, func(t *testing.T, p protocol) {
		segment := linkstest.NewSegment(t)
		st, client := p.station(t, segment, p.first), p.asker(t, segment)
		must(t, st.open(1, "eth0"))
		st.answer("eth0", p.vip)
		st.SetDown("eth0")
		st.SetUp("eth0")
		must(t, st.open(2, "eth0"))
		resolves(t, client, p.vip, st, "after the interface was down")

		// Removed and made again, it has another index, and the old one cannot be opened.
		old := st.Link("eth0").Attrs()
		if err := st.Netlink.LinkDel(st.Link("eth0")); err != nil {
			t.Fatal(err)
		}
		must(t, st.openAs())
		if failed := st.openAs(neighbour.Interface{Index: old.Index, Name: "eth0", MAC: neighbour.MAC(old.HardwareAddr)}); failed[old.Index] == nil {
			t.Fatal("an interface that is gone was opened")
		}
		segment.Attach(st.Host, "eth0", p.first.String())
		if st.Link("eth0").Attrs().Index == old.Index {
			t.Fatal("the interface got its old index")
		}
		must(t, st.open(1, "eth0"))
		st.answer("eth0", p.vip)
		resolves(t, client, p.vip, st, "after the interface was made anew")
	})
}

// An interface that is made anew with the index and the MAC of the former one is another one.
func TestAnInterfaceWithTheIndexOfAFormerOneAnswers(t *testing.T) {
	overBoth(t, func(t *testing.T, p protocol) {
		segment := linkstest.NewSegment(t)
		st, client := p.station(t, segment, p.first), p.asker(t, segment)
		must(t, st.open(1, "eth0"))
		st.answer("eth0", p.vip)
		resolves(t, client, p.vip, st, "at first")
		st.plug = segment.Replace(st.Host, "eth0", p.first.String())
		must(t, st.open(2, "eth0"))
		st.answer("eth0", p.vip)
		before, asked := st.responder.Stats().Answers, time.Time{} // announcements are no answers
		until(t, "what is asked after the interface was made anew is answered", func() bool {
			if time.Since(asked) > time.Second {
				client.Forget("eth0", p.vip)
				client.Ask(p.vip)
				asked = time.Now()
			}
			return st.responder.Stats().Answers > before
		})
	})
}

// A station on two segments answers on each for what is asked there.
func TestTwoInterfacesAnswerForTheirOwn(t *testing.T) {
	overBoth(t, func(t *testing.T, p protocol) {
		here, there := linkstest.NewSegment(t), linkstest.NewSegment(t)
		st := p.station(t, here, p.first)
		there.Attach(st.Host, "eth1")
		near, far := p.asker(t, here), p.asker(t, there)
		must(t, st.open(1, "eth0", "eth1"))
		on := map[int][]netip.Addr{
			st.Link("eth0").Attrs().Index: {p.vip},
			st.Link("eth1").Attrs().Index: {p.vip, p.another},
		}
		if err := st.Do(func() error { st.responder.Answer(on, nil, nil); return nil }); err != nil {
			t.Fatal(err)
		}
		resolves(t, near, p.vip, st, "on eth0")
		if mac := resolve(t, near, p.another, never); mac != nil {
			t.Errorf("%s is answered for by %s on the wrong interface", p.another, mac)
		}
		for _, a := range []netip.Addr{p.vip, p.another} {
			if mac := resolve(t, far, a, soon); !bytes.Equal(mac, st.MAC("eth1")) {
				t.Errorf("%s was resolved to %s, want eth1", a, mac)
			}
		}
		must(t, st.open(1, "eth1"))
		near.Forget("eth0", p.vip)
		if mac := resolve(t, near, p.vip, never); mac != nil {
			t.Errorf("answered by %s on an interface that is not open any more", mac)
		}
	})
}

// The kernel takes off the tag before a packet socket sees the frame, so that
// only the filter keeps out what is asked in another VLAN.
func TestAnotherVLANIsNotAnswered(t *testing.T) {
	overBoth(t, func(t *testing.T, p protocol) {
		segment := linkstest.NewSegment(t)
		st, client := p.station(t, segment, p.first), p.asker(t, segment)
		must(t, st.open(1, "eth0"))
		st.answer("eth0", p.vip)
		// What the kernel of the station answers shows that frames pass.
		if mac := resolve(t, client, p.first.Addr(), soon); mac == nil {
			t.Fatal("the station cannot be reached")
		}
		before := st.responder.Stats().Answers
		untagged := p.question(t)
		tagged := slices.Concat(untagged[:12], []byte{0x81, 0x00, 0, 5}, untagged[12:])
		conn := tap(t, client)
		for _, frame := range [][]byte{tagged, tagged, untagged} {
			if _, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "the untagged question is answered", func() bool { return st.responder.Stats().Answers > before })
		// Frames stay in order: the tagged ones came first.
		if n := st.responder.Stats().Answers - before; n != 1 {
			t.Fatalf("%d questions were answered, want the untagged one alone", n)
		}
	})
}

// question is the frame by which a kernel asks for the address.
func (p protocol) question(t *testing.T) []byte {
	t.Helper()
	client := p.asker(t, linkstest.NewSegment(t)) // where nobody answers
	conn := tap(t, client)
	if err := conn.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	client.Ask(p.vip)
	buffer := make([]byte, neighbour.MaxFrame)
	for {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil {
			t.Fatal(err)
		}
		frame := buffer[:n]
		if binary.BigEndian.Uint16(frame[12:]) == p.etherType && bytes.Contains(frame, p.vip.AsSlice()) {
			return frame
		}
	}
}

// tap opens a packet socket on the host's eth0.
func tap(t *testing.T, h *linkstest.Host) *packet.Conn {
	t.Helper()
	var conn *packet.Conn
	if err := h.Do(func() (err error) {
		conn, err = packet.Listen(&net.Interface{Index: h.Link("eth0").Attrs().Index}, packet.Raw, unix.ETH_P_ALL, nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// An interface whose queue stands still holds up nothing that is said on others: it is said by the one
// that decides for all of them.
func TestAnInterfaceThatSendsNothingHoldsUpNoOther(t *testing.T) {
	overBoth(t, func(t *testing.T, p protocol) {
		first, second := linkstest.NewSegment(t), linkstest.NewSegment(t)
		st := p.station(t, first, p.first)
		second.Attach(st.Host, "eth1", "198.51.100.1/24")
		must(t, st.open(0, "eth0", "eth1"))
		st.Stall("eth1")
		said := make(chan struct{})
		go func() {
			defer close(said)
			stalled := st.Link("eth1").Attrs().Index
			for range 1000 {
				st.responder.Say(neighbour.Announcement, stalled, p.vip)
				st.responder.Ask(stalled, p.vip, p.first.Addr(), neighbour.MAC{})
			}
		}()
		select {
		case <-said:
		case <-time.After(2 * time.Minute):
			t.Fatal("the one that speaks waits for an interface that sends nothing")
		}
		before := st.responder.Stats()
		if before.SendErrors == 0 {
			t.Error("nobody counts what the interface did not take")
		}
		st.responder.Say(neighbour.Announcement, st.Link("eth0").Attrs().Index, p.vip)
		if after := st.responder.Stats(); after.Announcements == before.Announcements || after.SendErrors != before.SendErrors {
			t.Errorf("nothing was said on the other interface: %+v, then %+v", before, after)
		}
	})
}
