package iptables

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/forwarding/nfnetlink"
)

// saved is what the kernel holds of one table, as far as it is ours.
type saved struct {
	chains map[string]int // by chain: its rules, or all that uses it
	uses   bool           // all that uses it, as nf_tables counts
	jumps  map[jump]int   // into chains of ours, from others
	stamp  uint64         // the digest that the stamp tells; 0: none
}

func newSaved() saved { return saved{chains: map[string]int{}, jumps: map[jump]int{}} }

// parseSave reads the output of iptables-save.
func parseSave(r io.Reader) (saved, error) {
	s := newSaved()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, ":"); ok {
			name, _, _ := strings.Cut(rest, " ")
			if strings.HasPrefix(name, ours) {
				s.chains[name] += 0
			}
			continue
		}
		rest, ok := strings.CutPrefix(line, "-A ")
		if !ok {
			continue
		}
		name, rule, _ := strings.Cut(rest, " ")
		if strings.HasPrefix(name, ours) {
			s.chains[name]++
			if name == chainStamp {
				s.stamp = parseStamp(rule)
			}
		} else if intoOurs(rule) {
			s.jumps[jump{name, rule}]++
		}
	}
	return s, lines.Err()
}

// intoOurs tells whether a rule leads to a chain of ours.
func intoOurs(rule string) bool {
	for i, part := range strings.Split(strings.ReplaceAll(rule, `\"`, ""), `"`) {
		if i%2 == 0 && (strings.Contains(" "+part, " -j "+ours) || strings.Contains(" "+part, " -g "+ours)) {
			return true // not in quotes, as a comment is
		}
	}
	return false
}

// glance reads what nf_tables counts of a table, without a look at the rules but for
// those of the chains that lead to ours and the stamp: iptables-nft-save takes seconds
// for what this reads in milliseconds. What leads to our chains under conditions, which
// is nothing of ours, it does not see but in the counts.
func glance(family addr.Family, table string, from []jump) (saved, error) {
	s := newSaved()
	s.uses = true
	err := dump(unix.NFT_MSG_GETCHAIN, family, nil, func(answer []byte) {
		name := nfnetlink.Text(answer, unix.NFTA_CHAIN_NAME)
		if n, ok := nfnetlink.Number(answer, unix.NFTA_CHAIN_USE); ok && strings.HasPrefix(name, ours) &&
			nfnetlink.Text(answer, unix.NFTA_CHAIN_TABLE) == table {
			s.chains[name] = int(n)
		}
	})
	if err != nil {
		return s, err
	}
	chains := []string{chainStamp}
	for _, j := range from {
		chains = append(chains, j.from)
	}
	for _, chain := range chains {
		query := nfnetlink.Attributes(nil).Text(unix.NFTA_RULE_TABLE, table).Text(unix.NFTA_RULE_CHAIN, chain)
		err := dump(unix.NFT_MSG_GETRULE, family, query, func(answer []byte) {
			to := jumpTarget(nfnetlink.Find(answer, unix.NFTA_RULE_EXPRESSIONS))
			switch {
			case nfnetlink.Text(answer, unix.NFTA_RULE_TABLE) != table || nfnetlink.Text(answer, unix.NFTA_RULE_CHAIN) != chain:
			case chain == chainStamp:
				s.stamp = stampOf(answer)
			case strings.HasPrefix(to, ours):
				s.jumps[jump{chain, "-j " + to}]++
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) { // no such chain
			return s, err
		}
	}
	return s, nil
}

// dump lists objects of nf_tables.
func dump(command int, family addr.Family, query nfnetlink.Attributes, each func(answer []byte)) error {
	if err := nfnetlink.Request(unix.NFNL_SUBSYS_NFTABLES, command, unix.NLM_F_DUMP, family, query, each); err != nil {
		return fmt.Errorf("read the chains of nf_tables: %w", err)
	}
	return nil
}

// jumpTarget is the chain that a rule of these expressions leads to by -j, "" if it
// does so under conditions or not at all.
func jumpTarget(expressions []byte) string {
	target, conditions := "", 0
	nfnetlink.Each(expressions, func(_ uint16, e []byte) {
		verdict := nfnetlink.Find(e, unix.NFTA_EXPR_DATA, unix.NFTA_IMMEDIATE_DATA, unix.NFTA_DATA_VERDICT)
		switch name := nfnetlink.Text(e, unix.NFTA_EXPR_NAME); {
		case name == "counter":
		case name != "immediate":
			conditions++
		default:
			if code, ok := nfnetlink.Number(verdict, unix.NFTA_VERDICT_CODE); ok && int32(code) == unix.NFT_JUMP {
				target = nfnetlink.Text(verdict, unix.NFTA_VERDICT_CHAIN)
			}
		}
	})
	if conditions > 0 {
		return ""
	}
	return target
}
