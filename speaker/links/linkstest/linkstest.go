// Package linkstest builds hosts and Ethernet segments out of network
// namespaces, for tests that want a real kernel to see real frames. The
// namespaces have no names: they are gone with the test, however it ends.
package linkstest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/links"
)

// Host is a network namespace of its own with its loopback up.
type Host struct {
	t         testing.TB
	namespace *netlab.Host
	// Netlink changes the host's links, addresses and routes.
	Netlink *netlink.Handle
}

// NewHost makes a host that lives as long as the test. It skips the test,
// naming what is missing, where namespaces may not be made.
func NewHost(t testing.TB) *Host {
	t.Helper()
	h := &Host{t: t, namespace: netlab.NewHost(t, "host")}
	h.must(h.Do(func() (err error) { h.Netlink, err = netlink.NewHandle(); return err }))
	t.Cleanup(h.Netlink.Close)
	return h
}

// Go runs f in the host's namespace on a thread of its own. Sockets that f
// opens, and programs that it starts, belong to the host.
func (h *Host) Go(f func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.namespace.Do(f)
	}()
	return ended
}

// Do is Go, and waits for f. It returns the error of f.
func (h *Host) Do(f func() error) error {
	err := errors.New("not run")
	h.namespace.Do(func() { err = f() })
	return err
}

// Dial connects from the host to a literal address. The error is that of net.Dialer.
func (h *Host) Dial(network, address string) (conn net.Conn, err error) {
	var dialer net.Dialer
	err = h.Do(func() (err error) {
		conn, err = dialer.DialContext(h.t.Context(), network, address)
		return err
	})
	return conn, err
}

// ListenPacket opens a socket of the host at a literal address. The error is that of net.ListenConfig.
func (h *Host) ListenPacket(network, address string) (conn net.PacketConn, err error) {
	var listen net.ListenConfig
	err = h.Do(func() (err error) {
		conn, err = listen.ListenPacket(h.t.Context(), network, address)
		return err
	})
	return conn, err
}

// Ask sends a datagram to the address, so that the host's kernel resolves it unless it knows the
// neighbour.
func (h *Host) Ask(a netip.Addr) {
	h.t.Helper()
	const discard = 9
	conn, err := h.Dial("udp", netip.AddrPortFrom(a, discard).String())
	h.must(err)
	_, err = conn.Write([]byte("who has it?"))
	h.must(errors.Join(err, conn.Close()))
}

// Sysctl writes a value of the host's /proc/sys/net.
func (h *Host) Sysctl(name, value string) {
	h.namespace.Do(func() { h.namespace.Sysctl("net/"+name, value) })
}

// Link returns the link with the name.
func (h *Host) Link(name string) netlink.Link {
	h.t.Helper()
	l, err := h.Netlink.LinkByName(name)
	if err != nil {
		h.t.Fatalf("link %s: %v", name, err)
	}
	return l
}

// MAC returns the MAC of a link.
func (h *Host) MAC(name string) net.HardwareAddr { return h.Link(name).Attrs().HardwareAddr }

// Add makes a link.
func (h *Host) Add(l netlink.Link) {
	h.t.Helper()
	h.must(h.Netlink.LinkAdd(l))
}

// SetUp switches a link on.
func (h *Host) SetUp(name string) {
	h.t.Helper()
	h.must(h.Netlink.LinkSetUp(h.Link(name)))
}

// SetDown switches a link off.
func (h *Host) SetDown(name string) {
	h.t.Helper()
	h.must(h.Netlink.LinkSetDown(h.Link(name)))
}

// AddAddress gives a link an address, which works at once: without duplicate address
// detection.
func (h *Host) AddAddress(name, prefix string) {
	h.namespace.Addr(name, prefix)
}

// DeleteAddress takes it away.
func (h *Host) DeleteAddress(name, prefix string) {
	h.t.Helper()
	a, err := netlink.ParseAddr(prefix)
	h.must(err)
	h.must(h.Netlink.AddrDel(h.Link(name), a))
}

func (h *Host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// Stall has a link that is up send next to nothing, as when its driver hangs or its switch has it
// pause: what is to leave by it waits in its queue.
func (h *Host) Stall(name string) {
	h.t.Helper()
	const trickle, most = 100, 2000 // bytes a second, and at once
	h.must(h.Netlink.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: queue(h.Link(name)), Rate: trickle, Limit: 1 << 30, Buffer: netlink.Xmittime(trickle, most),
	}))
}

// Flow has a link that was stalled send again. What waited is lost.
func (h *Host) Flow(name string) {
	h.t.Helper()
	h.must(h.Netlink.QdiscDel(&netlink.Tbf{QdiscAttrs: queue(h.Link(name))}))
}

func queue(l netlink.Link) netlink.QdiscAttrs {
	return netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
}

// Neighbour returns the MAC under which the host's kernel knows the address;
// nil for none.
func (h *Host) Neighbour(link string, a netip.Addr) net.HardwareAddr {
	h.t.Helper()
	n := h.entry(link, a)
	if n == nil || n.State&(netlink.NUD_REACHABLE|netlink.NUD_STALE|netlink.NUD_DELAY|netlink.NUD_PROBE) == 0 {
		return nil
	}
	return n.HardwareAddr
}

// Reachable reports whether the address has answered the host's kernel a moment ago.
func (h *Host) Reachable(link string, a netip.Addr) bool {
	h.t.Helper()
	n := h.entry(link, a)
	return n != nil && n.State == netlink.NUD_REACHABLE
}

// entry is what the host's kernel has noted of the address.
func (h *Host) entry(link string, a netip.Addr) *netlink.Neigh {
	h.t.Helper()
	all, err := h.Netlink.NeighList(h.Link(link).Attrs().Index, nl.GetIPFamily(a.AsSlice()))
	h.must(err)
	for _, n := range all {
		if known, ok := netip.AddrFromSlice(n.IP); ok && known.Unmap() == a {
			return &n
		}
	}
	return nil
}

// Forget removes what the host's kernel knows of the address.
func (h *Host) Forget(link string, a netip.Addr) {
	h.t.Helper()
	err := h.Netlink.NeighDel(&netlink.Neigh{LinkIndex: h.Link(link).Attrs().Index, IP: a.AsSlice()})
	if !errors.Is(err, unix.ENOENT) { // it was forgotten already
		h.must(err)
	}
}

// Segment is an Ethernet segment: a bridge in a namespace of its own.
type Segment struct {
	host  *Host
	ports int
}

// NewSegment makes a segment with no stations.
func NewSegment(t testing.TB) *Segment {
	t.Helper()
	s := &Segment{host: NewHost(t)}
	s.host.Add(&netlink.Bridge{LinkAttrs: attrs("segment")})
	s.host.SetUp("segment")
	return s
}

// Attach gives the host an interface with the name and addresses on the
// segment, and returns the name of the segment's side of the cable.
func (s *Segment) Attach(h *Host, name string, prefixes ...string) (plug string) {
	h.t.Helper()
	s.ports++
	plug = fmt.Sprintf("port%d", s.ports)
	s.host.Add(&netlink.Veth{LinkAttrs: attrs(plug), PeerName: name, PeerNamespace: netlink.NsFd(h.namespace.FD())})
	s.join(h, plug, name, prefixes...)
	return plug
}

// join has a cable be one of the segment, and the host's side of it have addresses.
func (s *Segment) join(h *Host, plug, name string, prefixes ...string) {
	h.t.Helper()
	h.must(s.host.Netlink.LinkSetMaster(s.host.Link(plug), s.host.Link("segment")))
	s.host.SetUp(plug)
	h.SetUp(name)
	for _, p := range prefixes {
		h.AddAddress(name, p)
	}
	s.host.namespace.AwaitCarrier(plug)
	h.namespace.AwaitCarrier(name)
}

// Replace takes an interface of the host away, as when it is moved to another network namespace, and gives
// it one with the same name, index and MAC on the segment. It returns the name of the segment's side.
func (s *Segment) Replace(h *Host, name string, prefixes ...string) (plug string) {
	h.t.Helper()
	old := h.Link(name).Attrs()
	h.must(h.Netlink.LinkDel(h.Link(name)))
	s.ports++
	plug = fmt.Sprintf("port%d", s.ports)
	h.must(h.Do(func() error {
		return exec.CommandContext(h.t.Context(), "ip", "link", "add", name, "address", old.HardwareAddr.String(), "index",
			strconv.Itoa(old.Index), "type", "veth", "peer", "name", plug).Run()
	}))
	h.must(h.Netlink.LinkSetNsFd(h.Link(plug), s.host.namespace.FD()))
	s.join(h, plug, name, prefixes...)
	return plug
}

// Exec runs a program where the segment is, and returns what it printed. The error is that of exec.Cmd.
func (s *Segment) Exec(command ...string) (string, error) {
	var out []byte
	err := s.host.Do(func() (err error) {
		out, err = exec.CommandContext(s.host.t.Context(), command[0], command[1:]...).CombinedOutput()
		return err
	})
	return string(out), err
}

// Pull unplugs one side's cable: the other side loses its carrier.
func (s *Segment) Pull(plug string) { s.host.SetDown(plug) }

// Plug plugs it in again.
func (s *Segment) Plug(plug string) { s.host.SetUp(plug) }

func attrs(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

// Ethernet is an interface in a subnet of each family, with a carrier or without.
func Ethernet(index int, up bool) links.Link {
	l := Port(index, fmt.Sprintf("eth%d", index), "192.0.2.1/24", up)
	l.Prefixes = append(l.Prefixes, netip.MustParsePrefix("2001:db8::1/64"))
	return l
}

// Port is an interface in one subnet, with a carrier or without.
func Port(index int, name, prefix string, carrier bool) links.Link {
	return links.Link{
		Index: index, Name: name, MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(index)},
		Up: true, Running: carrier, Broadcast: true, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)},
	}
}

// PodEnd is the host's end of a pod's cable, as some network plugins set it up: it has the
// address of the pods' gateway.
func PodEnd(index int) links.Link {
	return links.Link{
		Index: index, Name: fmt.Sprintf("veth%d", index), MAC: net.HardwareAddr{2, 1, 0, 0, byte(index >> 8), byte(index)}, Kind: "veth",
		Up: true, Running: true, Broadcast: true,
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/32"), netip.MustParsePrefix("fe80::1/64")},
	}
}
