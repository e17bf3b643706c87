package iptables

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
	"fairlead.dev/fairlead/speaker/forwarding/iptables/wire"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// saved is what the kernel holds of one table, as far as it is ours.
type saved struct {
	chains map[string]content
	jumps  []jump          // into chains of ours, from others
	base   map[string]bool // the built-in chains of nf_tables that are there
	names  []string        // of all chains of nf_tables
	places
}

// parseSave reads the output of iptables-save.
func parseSave(r io.Reader) (saved, error) {
	s := saved{chains: map[string]content{}}
	texts, rules := map[string]*strings.Builder{}, map[string]int{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, ":"); ok {
			name, _, _ := strings.Cut(rest, " ")
			if strings.HasPrefix(name, ours) {
				s.chains[name] = content{}
			}
			continue
		}
		rest, ok := strings.CutPrefix(line, "-A ")
		if !ok {
			continue
		}
		name, rule, _ := strings.Cut(rest, " ")
		if strings.HasPrefix(name, ours) {
			if texts[name] == nil {
				texts[name] = &strings.Builder{}
			}
			texts[name].WriteString(rule + "\n")
			rules[name]++
		} else if leadsTo(rule) != "" {
			s.jumps = append(s.jumps, jump{from: name, rule: rule})
		} else {
			s.pass(name, rule[strings.LastIndexByte(rule, ' ')+1:], 0)
		}
	}
	for name, text := range texts {
		s.chains[name] = contentOf(name, text.String(), rules[name])
	}
	return s, lines.Err()
}

// readNFT reads the rules of some chains of a table of nf_tables, one chain after the other: in a listing of all rules
// the kernel walks, for each message of it, all those again that it has listed. It returns the kernel's errors.
func (s *saved) readNFT(socket *nfnetlink.Conn, family addr.Family, table string, chains []string) error {
	for _, chain := range chains {
		query := nfnetlink.Attributes(nil).Text(unix.NFTA_RULE_TABLE, table).Text(unix.NFTA_RULE_CHAIN, chain)
		var rules []wire.Rule
		begin := func() { rules = rules[:0] }
		err := socket.Stream(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, family, query, begin, func(answer []byte) {
			r := wire.ParseRule(answer)
			// Older kernels know no such question, and list all.
			if nfnetlink.Text(answer, unix.NFTA_RULE_TABLE) == table && r.Chain == chain {
				rules = append(rules, r)
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) { // no such table or chain
			return fmt.Errorf("read the rules of nf_tables: %w", absent(err))
		}
		for _, r := range rules {
			s.rule(r)
		}
	}
	return nil
}

// readChains reads which chains a table of nf_tables has, and how often each of ours is used, by its rules and
// by those that lead to it. It returns the kernel's errors.
func readChains(socket *nfnetlink.Conn, family addr.Family, table string) (s saved, uses map[string]int, err error) {
	begin := func() {
		s = saved{chains: map[string]content{}, base: map[string]bool{}}
		uses = map[string]int{}
	}
	err = socket.Stream(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, family, nil, begin, func(answer []byte) {
		name := nfnetlink.Text(answer, unix.NFTA_CHAIN_NAME)
		if nfnetlink.Text(answer, unix.NFTA_CHAIN_TABLE) != table {
			return
		}
		s.names = append(s.names, name)
		switch {
		case strings.HasPrefix(name, ours):
			n, _ := nfnetlink.Number(answer, unix.NFTA_CHAIN_USE)
			s.chains[name], uses[name] = content{}, int(n)
		case nfnetlink.Find(answer, unix.NFTA_CHAIN_HOOK) != nil:
			s.base[name] = true
		}
	})
	if err != nil {
		err = fmt.Errorf("read the chains of nf_tables: %w", absent(err))
	}
	return s, uses, err
}

// quickCheck reads of a table of nf_tables the rules of those chains alone that are used more or less often
// than what was written does, and of the built-in ones: to read all takes the kernel some microseconds a rule.
// All is read if nothing of that differs, if the table was made anew, as iptables-restore does, or if another
// speaker has written: its chains may have as many rules as ours. It returns the kernel's errors.
func (t *table) quickCheck(socket *nfnetlink.Conn, family addr.Family) (saved, error) {
	if handle, err := tableHandle(socket, family, t.name); err != nil || handle != t.handle {
		return t.fullCheck(socket, family)
	}
	s, uses, err := readChains(socket, family, t.name)
	if err != nil {
		return s, err
	}
	var suspects []string
	expected := t.uses()
	for name := range s.chains {
		if uses[name] != expected[name] {
			suspects = append(suspects, name)
		} else {
			s.chains[name] = t.kernel[name]
		}
	}
	if !t.asWanted() {
		return t.fullCheck(socket, family)
	}
	if err := s.readNFT(socket, family, t.name, slices.Concat(suspects, slices.Collect(maps.Keys(s.base)))); err != nil {
		return s, err
	}
	another := slices.ContainsFunc(suspects, func(name string) bool { return s.chains[name].sum != 0 && s.chains[name] != t.kernel[name] })
	if another || len(suspects) > 0 && maps.Equal(s.chains, t.kernel) && len(s.jumps) == len(t.jumps) {
		return t.fullCheck(socket, family)
	}
	return s, nil
}

// fullCheck reads all rules of a table of nf_tables. It returns the kernel's errors.
func (t *table) fullCheck(socket *nfnetlink.Conn, family addr.Family) (saved, error) {
	handle, err := tableHandle(socket, family, t.name)
	if err != nil {
		return saved{}, err
	}
	s, _, err := readChains(socket, family, t.name)
	if err == nil {
		err = s.readNFT(socket, family, t.name, s.names)
	}
	if err == nil {
		t.handle = handle
	}
	return s, err
}

// tableHandle is the number that nf_tables gave a table when it was made, which no other one gets; 0 if there is
// none. It returns the kernel's errors.
func tableHandle(socket *nfnetlink.Conn, family addr.Family, name string) (handle uint64, err error) {
	const attribute = 4 // NFTA_TABLE_HANDLE
	about := nfnetlink.Attributes(nil).Text(unix.NFTA_TABLE_NAME, name)
	err = socket.Request(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, 0, family, about, func(answer []byte) {
		if value := nfnetlink.Find(answer, attribute); len(value) == 8 {
			handle = binary.BigEndian.Uint64(value)
		}
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return 0, fmt.Errorf("look for a table of nf_tables: %w", absent(err))
	}
	return handle, nil
}

// rule adds a rule of nf_tables. The tags of the rules that we write into a chain are its sum and the
// numbers that follow it.
func (s *saved) rule(r wire.Rule) {
	if !strings.HasPrefix(r.Chain, ours) {
		if strings.HasPrefix(r.Target, ours) {
			s.jumps = append(s.jumps, jump{from: r.Chain, rule: r.Text(), handle: r.Handle})
		} else {
			s.pass(r.Chain, r.Target, r.Handle)
		}
		return
	}
	c := s.chains[r.Chain]
	switch {
	case c == content{}:
		c = content{r.Tag, 1}
	case c != foreign && r.Tag == c.sum+uint64(c.rules):
		c.rules++
	default:
		c = foreign
	}
	if r.Tag == 0 {
		c = foreign
	}
	s.chains[r.Chain] = c
}

// Placed reads from the kernel what Services are reached at by our rules, whichever
// process wrote them, and their endpoints. NodePorts, which are those of all protocols, have
// no address. The errors are those of ipset.Elements.
func Placed(family addr.Family, protocol view.Protocol) (services, endpoints []netip.AddrPort, err error) {
	read := func(of string) []netip.AddrPort {
		elements, failed := ipset.Elements(style{family: family}.setName(of))
		switch {
		case errors.Is(failed, ipset.ErrMissing), errors.Is(failed, unix.EINVAL): // the latter without the kernel's module
		default:
			err = errors.Join(err, failed)
		}
		var found []netip.AddrPort
		for _, e := range elements {
			if e.Protocol == 0 || e.Protocol == protocol.Number() {
				found = append(found, netip.AddrPortFrom(e.Prefix.Addr(), e.Port))
			}
		}
		return found
	}
	return append(read(ofDestinations), read(ofNodePorts)...), read(ofEndpoints), err
}
