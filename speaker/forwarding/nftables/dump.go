package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// dump is what the kernel has under the name of our table: chains and elements as
// found, nothing if there is no such table or it is not one of this layout.
type dump struct {
	elements delta
	// fleeting: the table does not persist, so that no process can own it.
	fleeting bool
}

// read asks for everything but what the kernel remembers by itself.
func (l *layout) read() (*dump, error) {
	c := &dump{elements: delta{}}
	there, flags, err := l.Look()
	if err != nil || !there || flags&nftable.Dormant != 0 {
		return c, err
	}
	c.fleeting = flags&tablePersist == 0
	if err := l.readChains(c.elements); err != nil {
		return nil, err
	}
	for id := range l.sets {
		if setID(id) == affinity {
			continue
		}
		switch err := l.readElements(setID(id), c.elements); {
		case errors.Is(err, unix.ENOENT):
			return &dump{elements: delta{}}, nil
		case err != nil:
			return nil, err
		}
	}
	return c, nil
}

func (l *layout) readChains(into delta) error {
	values := map[string]string{}
	err := l.Ask(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, l.Attributes(), func(chain []byte) {
		if nfnetlink.Text(chain, unix.NFTA_CHAIN_TABLE) != l.NFT.Name { // the kernel tells all
			return
		}
		values[nfnetlink.Text(chain, unix.NFTA_CHAIN_NAME)] = nftable.HookOf(chain)
	})
	if err == nil {
		err = l.Ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, l.Attributes(), func(rule []byte) {
			if nfnetlink.Text(rule, unix.NFTA_RULE_TABLE) == l.NFT.Name {
				values[nfnetlink.Text(rule, unix.NFTA_RULE_CHAIN)] += "\n" + l.StampOf(rule)
			}
		})
	}
	if err != nil {
		return fmt.Errorf("read the rules of table %s of %s: %w", l.NFT.Name, l.Family, err)
	}
	for name, value := range values {
		into.found(element{item{chains, name}, value})
	}
	return nil
}

func (l *layout) readElements(id setID, into delta) error {
	about := l.Attributes().Text(unix.NFTA_SET_ELEM_LIST_SET, l.sets[id].Name)
	var begins []element
	var ends []string
	err := l.Ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, about, func(list []byte) {
		nfnetlink.Each(nfnetlink.Find(list, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, one []byte) {
			key, value, isEnd := nftable.ParseElement(one)
			e := element{item{id, key}, value}
			switch {
			case !l.sets[id].Interval:
				into.found(e)
			case isEnd:
				ends = append(ends, e.key)
			default:
				begins = append(begins, e)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("read %s of table %s of %s: %w", l.sets[id].Name, l.NFT.Name, l.Family, err)
	}
	for _, e := range pair(begins, ends) {
		into.found(e)
	}
	return nil
}

// pair makes intervals of where they begin, with their data in a map, and what is behind them, each of which is an
// element of its own to the kernel. One with nothing
// behind reaches to the last key, or, if another program made it so, to the next one.
func pair(begins []element, ends []string) []element {
	slices.SortFunc(begins, func(a, b element) int { return strings.Compare(a.key, b.key) })
	slices.Sort(ends)
	elements := make([]element, 0, len(begins))
	for i, begin := range begins {
		for len(ends) > 0 && ends[0] <= begin.key {
			ends = ends[1:]
		}
		last := strings.Repeat("\xff", len(begin.key))
		if len(ends) > 0 && (i+1 == len(begins) || ends[0] <= begins[i+1].key) {
			last = neighbor(ends[0], -1)
		}
		elements = append(elements, element{begin.item, last + begin.value})
	}
	return elements
}

// neighbor is the number behind (+1) or before (-1) one of so many bytes, "" if none is.
func neighbor(of string, by int) string {
	b := []byte(of)
	for i := len(b) - 1; i >= 0; i-- {
		over := b[i] == 0xff
		if by < 0 {
			over = b[i] == 0
		}
		b[i] += byte(by)
		if !over {
			return string(b)
		}
	}
	return ""
}

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
