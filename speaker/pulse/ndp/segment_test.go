package ndp_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	codec "github.com/mdlayher/ndp"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/ndp"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

var vip = netip.MustParseAddr("2001:db8::1:10")

// soon is more than anything here takes that does happen.
const soon = time.Minute

// station is a host on a segment that answers on eth0.
type station struct {
	*linkstest.Host
	t         *testing.T
	plug      string
	responder *neighbour.Responder
	ups       uint64
}

func newStation(t *testing.T, s *linkstest.Segment) *station {
	t.Helper()
	st := &station{Host: linkstest.NewHost(t), t: t, responder: ndp.New(testlog.New(t))}
	st.plug = s.Attach(st.Host, "eth0", "2001:db8::1/64")
	t.Cleanup(st.responder.Close)
	return st
}

func newClient(t *testing.T, s *linkstest.Segment) *linkstest.Host {
	t.Helper()
	client := linkstest.NewHost(t)
	s.Attach(client, "eth0", "2001:db8::99/64")
	return client
}

// answer tells the responder that eth0 came up, and makes it answer there.
func (s *station) answer(addresses ...netip.Addr) {
	s.t.Helper()
	s.ups++
	eth0 := s.Link("eth0").Attrs()
	var failed map[int]error
	err := s.Do(func() error {
		failed = s.responder.Open([]neighbour.Interface{{
			Index: eth0.Index, Name: "eth0", MAC: neighbour.MAC(eth0.HardwareAddr), Ups: s.ups,
		}})
		s.responder.Answer(map[int][]netip.Addr{eth0.Index: addresses}, nil, nil)
		return nil
	})
	if err != nil || len(failed) > 0 {
		s.t.Fatal(err, failed)
	}
}

// groups are the solicited-node groups that eth0 is in, as its kernel says.
func (s *station) groups() map[string]bool {
	s.t.Helper()
	var list []byte
	if err := s.Do(func() (err error) { list, err = os.ReadFile("/proc/thread-self/net/igmp6"); return err }); err != nil {
		s.t.Fatal(err)
	}
	in := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		if fields[1] == "eth0" && strings.HasPrefix(fields[2], "ff0200000000000000000001ff") {
			in[fields[2]] = true
		}
	}
	return in
}

func groupOf(t *testing.T, a netip.Addr) string {
	t.Helper()
	g, err := codec.SolicitedNodeMulticast(a)
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(g.AsSlice())
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

// resolves waits until the client's kernel, which forgets the address, finds it at
// the station by asking.
func resolves(t *testing.T, client *linkstest.Host, at *station, when string) {
	t.Helper()
	before := at.responder.Stats().Answers
	asked := time.Time{}
	until(t, when+": the address is resolved by asking", func() bool {
		if time.Since(asked) > 3*time.Second || at.responder.Stats().Answers == before && client.Neighbour("eth0", vip) != nil {
			client.Forget("eth0", vip) // an announcement was quicker, or the kernel has given up
			client.Ask(vip)
			asked = time.Now()
		}
		return at.responder.Stats().Answers > before && bytes.Equal(client.Neighbour("eth0", vip), at.MAC("eth0"))
	})
}

// A switch that forwards groups only to who asked for them passes no solicitation on
// to a station that is not in the group, and forgets what it knew when a cable is
// pulled.
func TestAStationIsInTheGroupsOfWhatItAnswers(t *testing.T) {
	t.Parallel()
	segment := linkstest.NewSegment(t)
	st, client := newStation(t, segment), newClient(t, segment)
	overheard := solicitations(t, newClient(t, segment))
	for _, command := range []string{
		"ip link set segment type bridge mcast_snooping 1 mcast_query_response_interval 10",
		"ip link set segment type bridge mcast_querier 1", // which counts after that interval, of 1/100 s
	} {
		if out, err := segment.Exec(strings.Fields(command)...); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	group := groupOf(t, vip)
	in := func(when string, want bool) {
		t.Helper()
		if got := st.groups()[group]; got != want {
			t.Errorf("%s: in the group %t, want %t", when, got, want)
		}
	}
	in("at first", false)
	st.answer(vip)
	in("when it answers", true)
	until(t, "the switch passes solicitations on to the group alone", func() bool {
		before := overheard.Load()
		resolves(t, client, st, "at first")
		return overheard.Load() == before
	})

	segment.Pull(st.plug)
	segment.Plug(st.plug)
	st.answer(vip)
	in("after the cable was out", true)
	resolves(t, client, st, "after the cable was out")

	st.SetDown("eth0")
	st.SetUp("eth0")
	st.answer(vip)
	in("after the interface was off", true)
	resolves(t, client, st, "after the interface was off")

	// An interface with a smaller MTU than IPv6 needs loses all that IPv6 had there.
	for _, mtu := range []int{1000, 1500} {
		if err := st.Netlink.LinkSetMTU(st.Link("eth0"), mtu); err != nil {
			t.Fatal(err)
		}
	}
	st.answer(vip)
	in("after IPv6 was off", true)
	st.answer()
	in("when it answers no more", false)
	st.answer(vip)
	st.responder.Close()
	in("when it is closed", false)
}

// solicitations counts those of the address that reach a host.
func solicitations(t *testing.T, h *linkstest.Host) *atomic.Int64 {
	t.Helper()
	var conn *packet.Conn
	if err := h.Do(func() (err error) {
		conn, err = packet.Listen(&net.Interface{Index: h.Link("eth0").Attrs().Index}, packet.Datagram, unix.ETH_P_IPV6, nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	seen := &atomic.Int64{}
	go func() {
		const kind, target = 40, 48 // offsets into a packet without extension headers
		buffer := make([]byte, 2048)
		for {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if p := buffer[:n]; n >= target+16 && p[kind] == 135 && netip.AddrFrom16([16]byte(p[target:])) == vip {
				seen.Add(1)
			}
		}
	}()
	return seen
}

// A socket may be in some hundred groups only.
func TestThousandsOfGroups(t *testing.T) {
	t.Parallel()
	segment := linkstest.NewSegment(t)
	st := newStation(t, segment)
	in := func(addresses []netip.Addr) (n int) {
		groups := st.groups()
		for _, a := range addresses {
			if groups[groupOf(t, a)] {
				n++
			}
		}
		return n
	}
	many := make([]netip.Addr, 0, 3001)
	for i := range 3000 {
		many = append(many, netip.MustParseAddr(fmt.Sprintf("2001:db8::2:%x", i)))
	}
	st.answer(many...)
	// Two addresses may be in one group, which is left with the last of them.
	twin := netip.MustParseAddr("2001:db8::7:2:1")
	st.answer(append(many, twin)...)
	if got := in(many); got != len(many) {
		t.Errorf("in %d groups, want %d", got, len(many))
	}
	st.answer(twin, many[0])
	if got := in(many); got != 2 || in(many[:2]) != 2 {
		t.Errorf("in %d groups, want 2", got)
	}
	st.answer(many[:100]...)
	if got := in(many); got != 100 || in(many[:100]) != 100 {
		t.Errorf("in %d groups, want 100", got)
	}
}

// A stranger that gives itself an address of ours is told so before it uses it.
func TestAStrangerWithOurAddressFindsItTaken(t *testing.T) {
	t.Parallel()
	segment := linkstest.NewSegment(t)
	st, client, stranger := newStation(t, segment), newClient(t, segment), newClient(t, segment)
	st.answer(vip)
	for _, value := range []string{"accept_dad", "dad_transmits"} {
		stranger.Sysctl("ipv6/conf/eth0/"+value, "1")
	}
	// It takes the address when nobody has said so for so long: more than a second, since
	// this machine may be busy.
	stranger.Sysctl("ipv6/neigh/eth0/retrans_time_ms", "30000")
	taken := &netlink.Addr{IPNet: &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(64, 128)}}
	if err := stranger.Netlink.AddrAdd(stranger.Link("eth0"), taken); err != nil {
		t.Fatal(err)
	}
	flags := func() int {
		all, err := stranger.Netlink.AddrList(stranger.Link("eth0"), netlink.FAMILY_V6)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if a.IP.Equal(vip.AsSlice()) {
				return a.Flags
			}
		}
		return unix.IFA_F_TENTATIVE
	}
	until(t, "the stranger has found out", func() bool { return flags()&unix.IFA_F_DADFAILED != 0 || flags()&unix.IFA_F_TENTATIVE == 0 })
	if flags()&unix.IFA_F_DADFAILED == 0 {
		t.Error("the stranger uses the address")
	}
	resolves(t, client, st, "with a stranger about")
}

// Some systems leave their own address out of what they ask one station.
func TestAQuestionWithoutALinkLayerAddressIsAnswered(t *testing.T) {
	t.Parallel()
	segment := linkstest.NewSegment(t)
	st, client := newStation(t, segment), newClient(t, segment)
	st.answer(vip)
	var conn *codec.Conn
	if err := client.Do(func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err == nil {
			conn, _, err = codec.Listen(eth0, codec.Global)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// It asks again each second, as hosts do (RFC 4861, RETRANS_TIMER): a busy machine may lose a question.
	answer := func(options []codec.Option) *codec.NeighborAdvertisement {
		for until := time.Now().Add(soon); time.Now().Before(until); {
			err := conn.WriteTo(&codec.NeighborSolicitation{TargetAddress: vip, Options: options}, nil, vip)
			if err == nil {
				err = conn.SetReadDeadline(time.Now().Add(time.Second))
			}
			if err != nil {
				t.Fatal(err)
			}
			for {
				m, _, _, err := conn.ReadFrom()
				if errors.Is(err, os.ErrDeadlineExceeded) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if a, ok := m.(*codec.NeighborAdvertisement); ok && a.TargetAddress == vip && a.Solicited {
					return a
				}
			}
		}
		t.Fatalf("asked with options %v: no answer", options)
		return nil
	}
	for _, options := range [][]codec.Option{
		nil,
		{&codec.RawOption{Type: 253, Length: 2, Value: make([]byte, 14)}}, // for experiments (RFC 4727)
		{codec.NewNonce(), codec.NewMTU(1500)},
	} {
		if a := answer(options); a.Router || !a.Override || len(a.Options) != 1 {
			t.Errorf("asked with options %v: answered %+v", options, a)
		}
	}
}

// What is no solicitation is counted and nothing else.
func TestWhatIsMalformedIsCounted(t *testing.T) {
	t.Parallel()
	segment := linkstest.NewSegment(t)
	st, client := newStation(t, segment), newClient(t, segment)
	st.answer(vip)
	resolves(t, client, st, "at first")
	var conn net.PacketConn
	if err := client.Do(func() (err error) { // a socket that leaves the hop limit at 64
		conn, err = (&net.ListenConfig{}).ListenPacket(t.Context(), "ip6:ipv6-icmp", "2001:db8::99")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b, err := codec.MarshalMessage(&codec.NeighborSolicitation{TargetAddress: vip})
	if err != nil {
		t.Fatal(err)
	}
	before := st.responder.Stats()
	if _, err := conn.WriteTo(b, &net.IPAddr{IP: vip.AsSlice()}); err != nil {
		t.Fatal(err)
	}
	until(t, "it is counted", func() bool { return st.responder.Stats().ParseErrors == before.ParseErrors+1 })
	resolves(t, client, st, "after it")
}
