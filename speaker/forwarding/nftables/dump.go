package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	nft "github.com/google/nftables"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
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
	there, flags, err := l.look()
	if err != nil || !there || flags&tableDormant != 0 {
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

// look tells whether the table is there, and its flags.
func (l *layout) look() (there bool, flags uint32, err error) {
	err = l.ask(unix.NFT_MSG_GETTABLE, 0, l.ofTable(), func(table []byte) {
		flags, _ = nfnetlink.Number(table, unix.NFTA_TABLE_FLAGS)
	})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPROTONOSUPPORT):
		return false, 0, nil // the latter two where the kernel has no nf_tables
	case err != nil:
		return false, 0, fmt.Errorf("look for table %s of %s: %w", l.table.Name, l.family, err)
	}
	return true, flags, nil
}

func (l *layout) readChains(into delta) error {
	values := map[string]string{}
	err := l.ask(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, l.ofTable(), func(chain []byte) {
		if nfnetlink.Text(chain, unix.NFTA_CHAIN_TABLE) != l.table.Name { // the kernel tells all
			return
		}
		values[nfnetlink.Text(chain, unix.NFTA_CHAIN_NAME)] = hookOf(chain)
	})
	if err == nil {
		err = l.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, l.ofTable(), func(rule []byte) {
			if nfnetlink.Text(rule, unix.NFTA_RULE_TABLE) == l.table.Name {
				values[nfnetlink.Text(rule, unix.NFTA_RULE_CHAIN)] += "\n" + l.stampOf(rule)
			}
		})
	}
	if err != nil {
		return fmt.Errorf("read the rules of table %s of %s: %w", l.table.Name, l.family, err)
	}
	for name, value := range values {
		into.found(element{item{chains, name}, value})
	}
	return nil
}

// hookOf describes the hook of a chain in the kernel, "" for one without.
func hookOf(chain []byte) string {
	number, hooked := nfnetlink.Number(chain, unix.NFTA_CHAIN_HOOK, unix.NFTA_HOOK_HOOKNUM)
	if !hooked {
		return ""
	}
	priority, _ := nfnetlink.Number(chain, unix.NFTA_CHAIN_HOOK, unix.NFTA_HOOK_PRIORITY)
	policy, _ := nfnetlink.Number(chain, unix.NFTA_CHAIN_POLICY)
	return describeHook(nfnetlink.Text(chain, unix.NFTA_CHAIN_TYPE), number, int32(priority), policy)
}

// counted are the packets that all counters of the table have counted since their rules were
// written; 0 without the table.
func (l *layout) counted() (packets uint64, err error) {
	err = l.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, l.ofTable(), func(rule []byte) {
		if nfnetlink.Text(rule, unix.NFTA_RULE_TABLE) != l.table.Name { // the kernel tells all
			return
		}
		nfnetlink.Each(nfnetlink.Find(rule, unix.NFTA_RULE_EXPRESSIONS), func(_ uint16, e []byte) {
			if nfnetlink.Text(e, unix.NFTA_EXPR_NAME) == "counter" {
				if n := nfnetlink.Find(e, unix.NFTA_EXPR_DATA, unix.NFTA_COUNTER_PACKETS); len(n) == 8 {
					packets += binary.BigEndian.Uint64(n)
				}
			}
		})
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return 0, fmt.Errorf("read the counters of table %s of %s: %w", l.table.Name, l.family, err)
	}
	return packets, nil
}

func (l *layout) readElements(id setID, into delta) error {
	about := l.ofTable().Text(unix.NFTA_SET_ELEM_LIST_SET, l.sets[id].Name)
	var begins, ends []string
	err := l.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, about, func(list []byte) {
		nfnetlink.Each(nfnetlink.Find(list, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, one []byte) {
			e, isEnd := parseElement(one)
			switch {
			case !l.isTree(id):
				e.set = id
				into.found(e)
			case isEnd:
				ends = append(ends, e.key)
			default:
				begins = append(begins, e.key)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("read %s of table %s of %s: %w", l.sets[id].Name, l.table.Name, l.family, err)
	}
	for _, e := range pair(begins, ends) {
		e.set = id
		into.found(e)
	}
	return nil
}

// parseElement reads one element of a set or map, but not of which.
func parseElement(data []byte) (e element, end bool) {
	nfnetlink.Each(data, func(kind uint16, value []byte) {
		switch kind {
		case unix.NFTA_SET_ELEM_KEY:
			e.key = string(nfnetlink.Find(value, unix.NFTA_DATA_VALUE))
		case nft.NFTA_SET_ELEM_KEY_END:
			e.value = string(nfnetlink.Find(value, unix.NFTA_DATA_VALUE))
		case unix.NFTA_SET_ELEM_DATA:
			if verdict := nfnetlink.Find(value, unix.NFTA_DATA_VERDICT); verdict != nil {
				e.value = nfnetlink.Text(verdict, unix.NFTA_VERDICT_CHAIN)
			} else {
				e.value = string(nfnetlink.Find(value, unix.NFTA_DATA_VALUE))
			}
		case unix.NFTA_SET_ELEM_FLAGS:
			if len(value) == 4 {
				end = value[3]&unix.NFT_SET_ELEM_INTERVAL_END != 0
			}
		}
	})
	return e, end
}

// ask puts a question about nf_tables and hands over the attributes of each answer.
func (l *layout) ask(message, flags int, about nfnetlink.Attributes, answer func([]byte)) error {
	return nfnetlink.Request(unix.NFNL_SUBSYS_NFTABLES, message, flags, l.family, about, answer)
}

// ofTable says which table a question is about: in every message of nf_tables that is the
// first attribute (linux/netfilter/nf_tables.h).
func (l *layout) ofTable() nfnetlink.Attributes {
	return nfnetlink.Attributes{}.Text(unix.NFTA_TABLE_NAME, l.table.Name)
}

// isTree tells whether the kernel has two elements for an interval: where it begins,
// and what is behind it.
func (l *layout) isTree(id setID) bool { return l.sets[id].Interval && !l.sets[id].Concatenation }

// pair makes intervals of where they begin and what is behind them. One with nothing
// behind reaches to the last key, or, if another program made it so, to the next one.
func pair(begins, ends []string) []element {
	slices.Sort(begins)
	slices.Sort(ends)
	elements := make([]element, 0, len(begins))
	for i, begin := range begins {
		for len(ends) > 0 && ends[0] <= begin {
			ends = ends[1:]
		}
		last := strings.Repeat("\xff", len(begin))
		if len(ends) > 0 && (i+1 == len(begins) || ends[0] <= begins[i+1]) {
			last = neighbor(ends[0], -1)
		}
		elements = append(elements, element{item{key: begin}, last})
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
