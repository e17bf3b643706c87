package foreignproxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// What network plugins make that have such a proxy: Calico only while it has taken kube-proxy's place, and Cilium
// always.
const (
	calicoLink = "bpfin.cali"
	ciliumLink = "cilium_host"
)

// Preempting returns in words the proxy that acts before any rule sees a packet; "" if none is found. service is a port that
// endpoints of a Service serve by UDP, by which proxies are found that translate at sockets, or invalid where there is none. The
// error says what could not be looked at.
func Preempting(service netip.AddrPort) (string, error) {
	if yes, err := hasLink(calicoLink); yes || err != nil {
		return "Calico in eBPF mode (interface " + calicoLink + ")", err
	}
	if !service.IsValid() {
		return "", nil
	}
	yes, err := AtSockets(service)
	if !yes || err != nil {
		return "", err
	}
	if is, err := hasLink(ciliumLink); is || err != nil {
		return "Cilium (interface " + ciliumLink + ")", err
	}
	return "a program at sockets", nil
}

// AtSockets reports whether a program of the kernel sends elsewhere what a process of this node sends by UDP to a port of
// a Service, before any rule sees it: so does a proxy that works by eBPF, as Cilium's in place of kube-proxy. A socket is
// connected, which sends nothing, and looked up: getpeername alone would not tell, since such a proxy answers it.
// The error says why the socket could not be looked at; that no route leads to the port is none.
func AtSockets(service netip.AddrPort) (bool, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(service))
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("connect to %s: %w", service, err)
	}
	defer func() { _ = conn.Close() }()
	table := "/proc/thread-self/net/udp"
	if service.Addr().Is6() {
		table += "6"
	}
	sockets, err := os.ReadFile(table)
	if err != nil {
		return false, err
	}
	local := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	peer, found := peerOf(string(sockets), netip.AddrPortFrom(local.Addr().Unmap().WithZone(""), local.Port()))
	if !found {
		return false, fmt.Errorf("%s lacks the socket that is connected to %s", table, service)
	}
	return peer != inTable(service), nil
}

// peerOf returns the peer of the socket with a local address, as the kernel's table of sockets has it.
func peerOf(sockets string, local netip.AddrPort) (peer string, found bool) {
	const localField, peerField = 1, 2
	for line := range strings.Lines(sockets) {
		if fields := strings.Fields(line); len(fields) > peerField && fields[localField] == inTable(local) {
			return fields[peerField], true
		}
	}
	return "", false
}

// inTable is an address and port as the table has it: the address in words of the processor's byte order.
func inTable(a netip.AddrPort) string {
	var text strings.Builder
	const word = 4
	for all := a.Addr().AsSlice(); len(all) > 0; all = all[word:] {
		fmt.Fprintf(&text, "%08X", binary.NativeEndian.Uint32(all))
	}
	return fmt.Sprintf("%s:%04X", &text, a.Port())
}
