package nftables

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

// Placed reads from the kernel what Services are reached at by our rules, whichever
// process wrote them, and their endpoints. NodePorts have no address. The errors are the
// kernel's.
func Placed(family addr.Family, protocol view.Protocol) (services, endpoints []netip.AddrPort, err error) {
	l := newLayout(family)
	if there, _, err := l.Look(); err != nil || !there {
		return nil, nil, err
	}
	known := map[setID]*[]netip.AddrPort{servers: &endpoints}
	for as := range byLink {
		known[byAddress.known(as)], known[byNodePort.known(as)] = &services, &services
	}
	for id, into := range known {
		found := delta{}
		if failed := l.readElements(id, found); !errors.Is(failed, unix.ENOENT) {
			err = errors.Join(err, failed)
		}
		for i := range found {
			if at, of, ok := parsePlace(i.key); ok && of == protocol.Number() {
				*into = append(*into, at)
			}
		}
	}
	return services, endpoints, err
}

// parsePlace reads the key of a destination or of a server: any number of equal
// addresses, a protocol and a port, each in words of four bytes.
func parsePlace(key string) (at netip.AddrPort, protocol uint8, ok bool) {
	const word = 4
	rest := len(key) - 2*word
	if rest < 0 {
		return netip.AddrPort{}, 0, false
	}
	port := binary.BigEndian.Uint16([]byte(key[rest+word:]))
	if rest > 16 || rest == 2*word {
		rest /= 2 // a server's address is there twice
	}
	a, _ := netip.AddrFromSlice([]byte(key[:rest])) // a NodePort has none
	return netip.AddrPortFrom(a, port), key[len(key)-2*word], true
}
