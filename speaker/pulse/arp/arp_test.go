package arp_test

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/arp"
)

var (
	vip     = netip.MustParseAddr("192.0.2.10")
	another = netip.MustParseAddr("192.0.2.11")
)

// station is a host on a segment with a responder on eth0.
type station struct {
	*linkstest.Host
	t         *testing.T
	responder *arp.Responder
}

func newStation(t *testing.T, s *linkstest.Segment, prefixes ...string) (st *station, plug string) {
	t.Helper()
	st = &station{Host: linkstest.NewHost(t), t: t, responder: arp.New(testlog.New(t))}
	plug = s.Attach(st.Host, "eth0", prefixes...)
	t.Cleanup(st.responder.Close)
	return st, plug
}

// open tells the responder of eth0 as it is.
func (s *station) open(ups uint64) {
	s.t.Helper()
	eth0 := s.Link("eth0").Attrs()
	var failed map[int]error
	if err := s.Do(func() error {
		failed = s.responder.Open([]arp.Interface{{
			Index: eth0.Index, Name: "eth0", MAC: arp.MAC(eth0.HardwareAddr), Ups: ups,
		}})
		return nil
	}); err != nil || len(failed) > 0 {
		s.t.Fatalf("open: %v, %v", err, failed)
	}
}

func (s *station) answer(addresses ...netip.Addr) {
	s.t.Helper()
	s.responder.Answer(map[int][]netip.Addr{s.Link("eth0").Attrs().Index: addresses})
}

// resolve makes the client's kernel ask for the address on the link, again and again,
// and waits for what it learns: nil if nothing within the time.
func resolve(t *testing.T, client *linkstest.Host, link string, a netip.Addr, within time.Duration) net.HardwareAddr {
	t.Helper()
	var mac net.HardwareAddr
	for end := time.Now().Add(within); mac == nil && time.Until(end) > 0; {
		client.Ask(a) // the kernel asks three times, once a second
		mac = await(t, client, link, a, min(time.Until(end), 3*time.Second), func(mac net.HardwareAddr) bool { return mac != nil })
	}
	return mac
}

// await waits until the client's kernel knows the address under a MAC of which
// the condition is true; it returns what it knows at last.
func await(t *testing.T, client *linkstest.Host, link string, a netip.Addr, within time.Duration, is func(net.HardwareAddr) bool) net.HardwareAddr {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		mac := client.Neighbour(link, a)
		if is(mac) || time.Now().After(deadline) {
			return mac
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// soon is more than an answer ever takes; never is enough to see that none comes.
const (
	soon  = 30 * time.Second
	never = 300 * time.Millisecond
)

func TestAKernelResolvesOurAddressesOnly(t *testing.T) {
	segment := linkstest.NewSegment(t)
	st, _ := newStation(t, segment, "192.0.2.1/24")
	client := linkstest.NewHost(t)
	segment.Attach(client, "eth0", "192.0.2.99/24")
	st.open(1)
	if mac := resolve(t, client, "eth0", vip, never); mac != nil {
		t.Fatalf("answered by %s before it was ours", mac)
	}
	st.answer(vip)
	want := st.MAC("eth0").String()
	if mac := resolve(t, client, "eth0", vip, soon); mac.String() != want {
		t.Fatalf("resolved to %s, want %s", mac, want)
	}
	if mac := resolve(t, client, "eth0", another, never); mac != nil {
		t.Fatalf("%s is not ours, and was answered by %s", another, mac)
	}
	// The announcement may have been quicker; now the client has to ask.
	for deadline := time.Now().Add(soon); st.responder.Stats().Answers == 0; {
		if time.Now().After(deadline) {
			t.Fatal("no answer was counted")
		}
		client.Forget("eth0", vip)
		resolve(t, client, "eth0", vip, soon)
	}
	st.answer()
	client.Forget("eth0", vip)
	if mac := resolve(t, client, "eth0", vip, never); mac != nil {
		t.Fatalf("answered by %s after it was lost", mac)
	}
	// Our own kernel's requests are nobody's conflict, and nothing was malformed.
	if s := st.responder.Stats(); s.Conflicts != 0 || s.ParseErrors != 0 || s.SendErrors != 0 {
		t.Errorf("counted %+v", s)
	}
}

func TestATakeoverMovesTheNeighbour(t *testing.T) {
	segment := linkstest.NewSegment(t)
	first, _ := newStation(t, segment, "192.0.2.1/24")
	second, _ := newStation(t, segment, "192.0.2.2/24")
	client := linkstest.NewHost(t)
	segment.Attach(client, "eth0", "192.0.2.99/24")
	first.open(1)
	second.open(1)
	first.answer(vip)
	if mac := resolve(t, client, "eth0", vip, soon); mac.String() != first.MAC("eth0").String() {
		t.Fatalf("resolved to %s", mac)
	}
	second.answer(vip) // and the first goes on: the newer claim must win
	begun := time.Now()
	want := second.MAC("eth0").String()
	mac := await(t, client, "eth0", vip, soon, func(mac net.HardwareAddr) bool { return mac.String() == want })
	if mac.String() != want {
		t.Fatalf("the neighbour is still %s, want %s", mac, want)
	}
	t.Logf("the client's neighbour entry moved after %v", time.Since(begun).Round(100*time.Microsecond))
	// The first has seen that another one claims its address.
	for deadline := time.Now().Add(soon); first.responder.Stats().Conflicts == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the first counted no conflict")
		}
	}
}

func TestANewMACIsAnsweredAndAnnounced(t *testing.T) {
	segment := linkstest.NewSegment(t)
	st, _ := newStation(t, segment, "192.0.2.1/24")
	client := linkstest.NewHost(t)
	segment.Attach(client, "eth0", "192.0.2.99/24")
	st.open(1)
	st.answer(vip)
	resolve(t, client, "eth0", vip, soon)
	mac := net.HardwareAddr{2, 0, 0, 0, 7, 7}
	if err := st.Netlink.LinkSetHardwareAddr(st.Link("eth0"), mac); err != nil {
		t.Fatal(err)
	}
	st.open(1)
	got := await(t, client, "eth0", vip, soon, func(m net.HardwareAddr) bool { return m.String() == mac.String() })
	if got.String() != mac.String() {
		t.Fatalf("announced as %s, want %s", got, mac)
	}
	client.Forget("eth0", vip)
	if got := resolve(t, client, "eth0", vip, soon); got.String() != mac.String() {
		t.Fatalf("answered with %s, want %s", got, mac)
	}
}

func TestAnInterfaceThatWentDownAnswersWhenItIsBack(t *testing.T) {
	segment := linkstest.NewSegment(t)
	st, _ := newStation(t, segment, "192.0.2.1/24")
	client := linkstest.NewHost(t)
	segment.Attach(client, "eth0", "192.0.2.99/24")
	st.open(1)
	st.answer(vip)
	st.SetDown("eth0")
	st.SetUp("eth0")
	st.open(2)
	if mac := resolve(t, client, "eth0", vip, soon); mac == nil {
		t.Fatal("no answer after the interface was down")
	}

	// Removed and made again, it has another index, and the old one cannot be opened.
	old := st.Link("eth0").Attrs()
	if err := st.Netlink.LinkDel(st.Link("eth0")); err != nil {
		t.Fatal(err)
	}
	st.responder.Open(nil)
	var failed map[int]error
	if err := st.Do(func() error {
		failed = st.responder.Open([]arp.Interface{{Index: old.Index, Name: "eth0", MAC: arp.MAC(old.HardwareAddr)}})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := failed[old.Index]; !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENXIO) {
		t.Fatalf("opening an interface that is gone: %v", err)
	}
	segment.Attach(st.Host, "eth0", "192.0.2.1/24")
	if st.Link("eth0").Attrs().Index == old.Index {
		t.Fatal("the interface got its old index")
	}
	client.Forget("eth0", vip)
	st.open(1)
	st.answer(vip)
	if mac := resolve(t, client, "eth0", vip, soon); mac.String() != st.MAC("eth0").String() {
		t.Fatalf("resolved to %s after the interface was made anew, want %s", mac, st.MAC("eth0"))
	}
}

// The kernel takes off the tag before a packet socket sees the frame, so that
// only the filter keeps out what is asked in another VLAN.
func TestAnotherVLANIsNotAnswered(t *testing.T) {
	segment := linkstest.NewSegment(t)
	st, _ := newStation(t, segment, "192.0.2.1/24")
	client := linkstest.NewHost(t)
	segment.Attach(client, "eth0", "192.0.2.99/24")
	st.open(1)
	st.answer(vip)
	// What the kernel of the station answers shows that frames pass.
	if mac := resolve(t, client, "eth0", netip.MustParseAddr("192.0.2.1"), soon); mac == nil {
		t.Fatal("the station cannot be reached")
	}

	sender := client.MAC("eth0")
	untagged := slices.Concat(broadcast, sender, []byte{
		0x08, 0x06, // ARP
		0, 1, 0x08, 0x00, 6, 4, 0, 1, // a request of IPv4 over Ethernet
	}, sender, []byte{192, 0, 2, 99}, make([]byte, 6), vip.AsSlice())
	tagged := slices.Concat(untagged[:12], []byte{0x81, 0x00, 0, 5}, untagged[12:])
	if err := client.Do(func() error {
		eth0 := client.Link("eth0").Attrs()
		conn, err := packet.Listen(&net.Interface{Index: eth0.Index}, packet.Raw, unix.ETH_P_ARP, nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, frame := range [][]byte{tagged, tagged, untagged} {
			if _, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: broadcast}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(soon); st.responder.Stats().Answers == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the untagged request was not answered")
		}
	}
	// Frames stay in order: the tagged ones came first.
	if n := st.responder.Stats().Answers; n != 1 {
		t.Fatalf("%d requests were answered, want the untagged one alone", n)
	}
}

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
