package blackbox_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// way is an interface of the node's by which a client comes, laid over a cable named way, and what makes it on each side. The
// name of the interface is dev on both.
type way struct {
	name, dev string
	add       string // the kernel has it if ip adds this; "": always
	node      string // commands of ip on the node
	client    string // and on the client
}

// ways are those that nodes have. With a VRF, the node has routes from the VRF to the main table and back.
var ways = []way{
	{name: "plain", dev: "way"},
	{name: "vlan", dev: "vlan5", add: "link add d0 type bridge; link add link d0 name vlan5 type vlan id 5", node: overVLAN, client: overVLAN},
	{name: "bond", dev: "bond5", add: "link add bond5 type bond mode active-backup miimon 10", node: overBond, client: overBond},
	{
		name: "vrf", dev: "way", add: "link add red type vrf table 100",
		node: "link add red type vrf table 100; link set red up; link set way master red; " +
			"route add 10.244.1.11/32 dev p1 table 100; -6 route add fd00:1::11/128 dev p1 table 100; " +
			"route add 192.0.9.0/24 dev way; -6 route add 2001:db8:9::/64 dev way",
	},
	{name: "wireguard", dev: "wg5", add: overWireGuard, node: overWireGuard, client: overWireGuard},
}

const (
	overVLAN      = "link add link way name vlan5 type vlan id 5"
	overBond      = "link add bond5 type bond mode active-backup miimon 10; link set way down; link set way master bond5; link set bond5 up; link set way up"
	overWireGuard = "link add wg5 type wireguard"
)

// ip runs commands of ip on a host, and returns an error that says what ip said.
func ip(t *testing.T, h *netlab.Host, commands string) (err error) {
	h.Do(func() {
		for command := range strings.SplitSeq(commands, "; ") {
			if command == "" {
				continue
			}
			if out, failed := exec.CommandContext(t.Context(), "ip", strings.Fields(command)...).CombinedOutput(); failed != nil {
				err = fmt.Errorf("ip %s: %w: %s", command, failed, out)
				return
			}
		}
	})
	return err
}

// TestWaysIn has a client come by each kind of interface, and open an association of SCTP by real sockets. Of those that this
// kernel lacks an emulated one has all (e2e/kernels).
func TestWaysIn(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()[1], blackbox.Service{Name: "only", N: 1, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P1), true
		}})
		for _, f := range addr.Families() {
			p := want.Ports[blackbox.Key("only", view.TCP, f)]
			p.Cluster = blackbox.At(sctpPort, blackbox.Plan(f).P1)
			want.Ports[blackbox.Key("only", view.SCTP, f)] = p
		}
		c.Apply(want)
		for _, w := range ways {
			if err := ip(t, netlab.NewHost(t, "scratch"), w.add); err != nil {
				if netlab.Emulated() {
					t.Errorf("%s: %v", w.name, err)
				}
				continue
			}
			t.Run(w.name, func(t *testing.T) { c.comeBy(t, w) })
		}
		if hasIPVS(t) {
			t.Run("ipvs", func(t *testing.T) { c.besideIPVS(t) })
		} else if netlab.Emulated() {
			t.Error("the kernel has no IPVS")
		}
		if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP); err == nil {
			_ = unix.Close(fd)
			t.Run("sctp", func(t *testing.T) { c.associateBySockets(t) })
		} else if netlab.Emulated() {
			t.Errorf("sockets of SCTP: %v", err)
		}
	})
}

// comeBy asks Services of both policies from a client behind the way.
func (c *cluster) comeBy(t *testing.T, w way) {
	stranger := netlab.NewHost(t, "stranger")
	netlab.Connect(c.Node, "way", stranger, "way")
	defer func() {
		for _, name := range []string{"wg5", "vlan5", "bond5", "red", "way"} {
			_ = ip(t, c.Node, "link del "+name)
		}
	}()
	if err := errors.Join(ip(t, c.Node, w.node), ip(t, stranger, w.client)); err != nil {
		t.Fatal(err)
	}
	if w.name == "wireguard" {
		c.Node.Addr("way", "192.0.10.1/24")
		stranger.Addr("way", "192.0.10.2/24")
		if err := tunnel(c.Node, "192.0.10.1", stranger, "192.0.10.2"); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(ip(t, c.Node, "link set "+w.dev+" up"), ip(t, stranger, "link set "+w.dev+" up")); err != nil {
		t.Fatal(err)
	}
	if w.name == "bond" {
		c.Node.AwaitCarrier(w.dev)
		stranger.AwaitCarrier(w.dev)
	}
	c.Node.Addr(w.dev, "192.0.9.1/24", "2001:db8:9::1/64")
	stranger.Addr(w.dev, "192.0.9.100/24", "2001:db8:9::100/64")
	stranger.Route("198.51.100.0/24", "192.0.9.1", w.dev)
	stranger.Route("2001:db8:51::/64", "2001:db8:9::1", w.dev)
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		client := map[addr.Family]string{addr.IPv4: "192.0.9.100", addr.IPv6: "2001:db8:9::100"}[f]
		for n, seen := range map[byte]string{1: blackbox.Nth(a.Pods, 1).String(), 2: client} {
			for _, network := range []string{"tcp", "udp"} {
				to := netip.AddrPortFrom(blackbox.Nth(a.VIPs, n), 80)
				flow, err := stranger.Dial(network, netip.AddrPort{}, to, answerIn)
				if err != nil {
					t.Errorf("%s to %s: %v", network, to, err)
					continue
				}
				got, err := flow.Ask()
				flow.Close()
				if err != nil || got.Server != "p1" || n == 2 && got.Seen != seen || n == 1 && got.Seen == client {
					t.Errorf("%s to %s: %+v, %v", network, to, got, err)
				}
			}
		}
	}
}

// tunnel sets two interfaces wg5 up as each other's peer, for all addresses.
func tunnel(one *netlab.Host, at string, other *netlab.Host, otherAt string) error {
	const port = 51820
	var keys [2]*ecdh.PrivateKey
	for i := range keys {
		var err error
		if keys[i], err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
			return err
		}
	}
	set := func(h *netlab.Host, own, peer *ecdh.PrivateKey, to string) (err error) {
		h.Do(func() { err = setWireGuard(own, peer.PublicKey(), netip.AddrPortFrom(netip.MustParseAddr(to), port)) })
		return err
	}
	return errors.Join(set(one, keys[0], keys[1], otherAt), set(other, keys[1], keys[0], at))
}

// setWireGuard is wg set wg5, by the attributes of linux/wireguard.h.
func setWireGuard(own *ecdh.PrivateKey, peer *ecdh.PublicKey, to netip.AddrPort) error {
	family, err := netlink.GenlFamilyGet("wireguard")
	if err != nil {
		return err
	}
	endpoint := binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
	endpoint = binary.BigEndian.AppendUint16(endpoint, to.Port())
	endpoint = append(append(endpoint, to.Addr().AsSlice()...), make([]byte, 8)...)
	const nested = unix.NLA_F_NESTED
	peers := nl.NewRtAttr(8|nested, nil)
	p := peers.AddRtAttr(0|nested, nil)
	p.AddRtAttr(1, peer.Bytes())
	p.AddRtAttr(4, endpoint)
	allowed := p.AddRtAttr(9|nested, nil)
	for i, all := range []struct {
		family uint16
		bytes  int
	}{{unix.AF_INET, 4}, {unix.AF_INET6, 16}} {
		a := allowed.AddRtAttr(i|nested, nil)
		a.AddRtAttr(1, nl.Uint16Attr(all.family))
		a.AddRtAttr(2, make([]byte, all.bytes))
		a.AddRtAttr(3, nl.Uint8Attr(0))
	}
	request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	request.AddData(&nl.Genlmsg{Command: 1, Version: 1})
	request.AddData(nl.NewRtAttr(2, nl.ZeroTerminated("wg5")))
	request.AddData(nl.NewRtAttr(3, own.Bytes()))
	request.AddData(nl.NewRtAttr(6, nl.Uint16Attr(to.Port())))
	request.AddData(peers)
	_, err = request.Execute(unix.NETLINK_GENERIC, 0)
	return err
}

// sctpPort is where the pod listens.
const sctpPort = 5000

// associateBySockets has the client and a pod say a word each by a Service of SCTP.
func (c *cluster) associateBySockets(t *testing.T) {
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		pod, client := sctpSocket(t, c.P1, netip.AddrPortFrom(a.P1, sctpPort)), sctpSocket(t, c.Client, netip.AddrPortFrom(a.Client, 0))
		if err := unix.Listen(pod, 1); err != nil {
			t.Fatal(err)
		}
		go func() {
			fd, _, err := unix.Accept(pod) // until there is one, or the time of the socket is over: its failure shows at the client
			if err != nil {
				return
			}
			word := make([]byte, 16)
			if n, err := unix.Read(fd, word); err == nil {
				_, _ = unix.Write(fd, append(word[:n], " heard"...))
			}
			_, _ = unix.Read(fd, word) // until the client has closed
			_ = unix.Close(fd)
		}()
		heard := make([]byte, 16)
		n, err := 0, unix.Connect(client, sockaddr(netip.AddrPortFrom(blackbox.Nth(a.VIPs, 1), 80)))
		if err == nil {
			_, err = unix.Write(client, []byte("word"))
		}
		if err == nil {
			n, err = unix.Read(client, heard)
		}
		if got := string(heard[:max(n, 0)]); err != nil || got != "word heard" {
			t.Errorf("%s: %q, %v", f, got, err)
		}
		_ = unix.Close(client)
	}
}

func sctpSocket(t *testing.T, h *netlab.Host, at netip.AddrPort) (fd int) {
	t.Helper()
	domain := unix.AF_INET
	if at.Addr().Is6() {
		domain = unix.AF_INET6
	}
	var err error
	h.Do(func() { fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP) })
	if err != nil {
		t.Fatal(err)
	}
	limit := unix.NsecToTimeval(int64(answerIn / time.Nanosecond))
	if err := errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit), unix.Bind(fd, sockaddr(at))); err != nil {
		t.Fatal(err)
	}
	return fd
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
