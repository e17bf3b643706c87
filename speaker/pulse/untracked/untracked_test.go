package untracked

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// hellos is the port that tests have for hellos.
const hellos = 17475

// datagram is sent by a peer to the node.
type datagram struct {
	about    string
	from, to uint16
	ttl      int
	tracked  bool
}

func datagrams() []datagram {
	return []datagram{
		{"a hello", hellos, hellos, 64, false},
		{"what is no hello", 53, hellos, 64, true},
		{"BFD over one hop", 49152, 3784, 255, false},
		{"BFD that came over more hops than one", 49152, 3784, 254, true},
		{"BFD over several hops", 65535, 4784, 61, false},
		{"an answer from a server", 53, 4784, 64, true},
		{"something else", 49152, 8000, 255, true},
	}
}

// lan are a peer and a node on one network.
func lan(t *testing.T) (peer, node *netlab.Host) {
	peer, node = netlab.NewHost(t, "peer"), netlab.NewHost(t, "node")
	netlab.Connect(peer, "eth0", node, "eth0")
	peer.Addr("eth0", "192.0.2.2/24", "2001:db8::2/64")
	node.Addr("eth0", "192.0.2.1/24", "2001:db8::1/64")
	return peer, node
}

// running keeps the table on a node until the test ends or it is stopped.
func running(t *testing.T, node *netlab.Host) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go node.Do(func() {
		defer close(ended)
		if err := New(hellos, testlog.New(t)).Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(began) > blackbox.AnswerIn {
			t.Fatal("not ", what)
		}
	}
}

func ruleset(t *testing.T, h *netlab.Host) string {
	return blackbox.RunOn(t, h, "nft", "list", "ruleset")
}

func isThere(t *testing.T, h *netlab.Host) bool { return strings.Count(ruleset(t, h), "notrack") == 12 }

// hears reports whether what one host sends reaches the other one's socket.
func hears(t *testing.T, sender, receiver *netlab.Host, from, to netip.AddrPort, ttl int) bool {
	t.Helper()
	in, out := open(t, receiver, to, 64), open(t, sender, from, ttl)
	defer func() { _ = in.Close() }()
	defer func() { _ = out.Close() }()
	buffer := make([]byte, 16)
	for range 5 { // the first may wait for the neighbour's address
		if _, err := out.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(to)); err != nil && !strings.Contains(err.Error(), unix.EPERM.Error()) {
			t.Fatal(err)
		}
		if err := in.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := in.ReadFrom(buffer); err == nil {
			return true
		}
	}
	return false
}

func open(t *testing.T, h *netlab.Host, at netip.AddrPort, ttl int) (c net.PacketConn) {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, ttl)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, ttl)
		})
	}}
	var err error
	h.Do(func() { c, err = config.ListenPacket(t.Context(), "udp", at.String()) })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAConnectionTableWithoutRoomMakesNoNodeDeaf has rules drop all flows that would need an entry, as a kernel does whose
// table is full: hellos and BFD arrive and leave all the same, and nothing else does.
func TestAConnectionTableWithoutRoomMakesNoNodeDeaf(t *testing.T) {
	peer, node := lan(t)
	running(t, node)
	eventually(t, "in the kernel", func() bool { return isThere(t, node) })
	for _, hook := range []string{"prerouting", "output"} {
		blackbox.RunOn(t, node, "sh", "-c", fmt.Sprintf(
			"nft add table inet full; nft 'add chain inet full %s { type filter hook %s priority -150; }'; nft add rule inet full %s meta l4proto udp ct state new drop", hook, hook, hook))
	}
	for _, d := range datagrams() {
		for at, by := range map[string]string{"192.0.2.1": "192.0.2.2", "2001:db8::1": "2001:db8::2"} {
			from, to := netip.AddrPortFrom(netip.MustParseAddr(by), d.from), netip.AddrPortFrom(netip.MustParseAddr(at), d.to)
			if arrives := hears(t, peer, node, from, to, d.ttl); arrives == d.tracked {
				t.Errorf("%s from %s: arrives: %t, want %t", d.about, from, arrives, !d.tracked)
			}
			// What a node sends itself has not lost a hop yet.
			sent := !d.tracked && (d.from == d.to || d.ttl == 255)
			if leaves := hears(t, node, peer, netip.AddrPortFrom(to.Addr(), d.from), netip.AddrPortFrom(from.Addr(), d.to), d.ttl); leaves != sent {
				t.Errorf("%s to %s: leaves: %t, want %t", d.about, from, leaves, sent)
			}
		}
	}
}

// TestNoRuleTranslatesHellos has another program translate all that comes to a port.
func TestNoRuleTranslatesHellos(t *testing.T) {
	peer, node := lan(t)
	blackbox.RunOn(t, node, "sh", "-c", "nft add table inet evil; nft 'add chain inet evil p { type nat hook prerouting priority -100; }'; "+
		"nft 'add rule inet evil p udp dport { 17475, 3784, 4784, 8000 } redirect to :9'")
	running(t, node)
	eventually(t, "in the kernel", func() bool { return isThere(t, node) })
	for _, d := range datagrams() {
		for at, by := range map[string]string{"192.0.2.1": "192.0.2.2", "2001:db8::1": "2001:db8::2"} {
			from, to := netip.AddrPortFrom(netip.MustParseAddr(by), d.from), netip.AddrPortFrom(netip.MustParseAddr(at), d.to)
			if got := hears(t, peer, node, from, to, d.ttl); got == d.tracked {
				t.Errorf("%s from %s reaches its port: %t, want %t", d.about, from, got, !d.tracked)
			}
		}
	}
}

// TestTheTableIsKept: what others change is written again, what is in place is not, and another port is taken over.
func TestTheTableIsKept(t *testing.T) {
	_, node := lan(t)
	stop := running(t, node)
	eventually(t, "in the kernel", func() bool { return isThere(t, node) })
	for _, others := range []string{
		"nft flush ruleset", "nft delete table ip6 fairlead-untracked", "nft flush chain ip fairlead-untracked arriving",
		"nft insert rule ip fairlead-untracked leaving accept",
	} {
		blackbox.RunOn(t, node, "sh", "-c", others)
		eventually(t, "repaired after "+others, func() bool { return isThere(t, node) && !strings.Contains(ruleset(t, node), "accept\n") })
	}
	stop()
	before := blackbox.Generation(t, node)
	node.Do(func() { New(hellos, testlog.New(t)).Apply() })
	if n := blackbox.Generation(t, node) - before; n != 0 {
		t.Errorf("%d transactions after a restart, want none", n)
	}
	node.Do(func() { New(7475, testlog.New(t)).Apply() })
	if got := ruleset(t, node); !strings.Contains(got, "7475") || strings.Contains(got, fmt.Sprint(hellos)) || !isThere(t, node) {
		t.Errorf("with another port there is\n%s", got)
	}
}

// TestARefusalIsToldOnce: a kernel that refuses is asked again, and what comes of it is told once.
func TestARefusalIsToldOnce(t *testing.T) {
	node := netlab.NewHost(t, "node")
	var log strings.Builder
	node.Do(func() {
		k := New(hellos, slog.New(slog.NewTextHandler(&log, nil)))
		k.AgainEvery = 0
		blackbox.Powerless(t, func() { k.Apply(); k.Apply() })
		if n := strings.Count(log.String(), unix.EPERM.Error()); n != 2 {
			t.Errorf("told %d times for two families: %s", n, &log)
		}
		k.Apply()
	})
	if n := strings.Count(log.String(), "any more"); n != 2 || !isThere(t, node) {
		t.Errorf("told %d times that it is over: %s", n, &log)
	}
}
