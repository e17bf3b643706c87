// Package wire writes and reads rules of iptables-nft over netlink: as the same bytes that
// iptables-nft-restore sends, in a fraction of its time.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// Transaction changes chains of tables that iptables has made: all of it, or nothing if it fails.
type Transaction struct {
	*nfnetlink.Transaction

	family addr.Family
	socket *nfnetlink.Conn // to ask for the sets that rules name
	sets   map[string]uint16
	chains []part
}

// part is where the commands about a chain begin.
type part struct {
	command int
	chain   string
}

// New begins one that will have about so many bytes. The sets that rules name are asked for over the socket.
func New(family addr.Family, size int, socket *nfnetlink.Conn) *Transaction {
	return &Transaction{
		Transaction: nfnetlink.NewTransaction(unix.NFNL_SUBSYS_NFTABLES, family, size),
		family:      family, socket: socket, sets: map[string]uint16{},
	}
}

// index is that of a set.
func (t *Transaction) index(set string) (uint16, error) {
	index, known := t.sets[set]
	if known {
		return index, nil
	}
	index, err := ipset.Index(t.socket, set)
	if err == nil {
		t.sets[set] = index
	}
	return index, err
}

func (t *Transaction) about(command, flags int, chain string, body func(nfnetlink.Attributes) nfnetlink.Attributes) {
	if n := len(t.chains); n == 0 || t.chains[n-1].chain != chain {
		t.chains = append(t.chains, part{t.Commands(), chain})
	}
	t.Add(command, flags, body)
}

// Base is a chain that packets enter by a hook.
type Base struct {
	Chain    string
	Hook     uint32
	Priority int32
}

// MakeTable creates a table with its built-in chains, unless they are there.
func (t *Transaction) MakeTable(table string, chains []Base) {
	t.about(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, table, func(a nfnetlink.Attributes) nfnetlink.Attributes {
		return a.Text(unix.NFTA_TABLE_NAME, table)
	})
	kind := "nat"
	if table == "filter" {
		kind = "filter"
	}
	for _, c := range chains {
		t.about(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, c.Chain, func(a nfnetlink.Attributes) nfnetlink.Attributes {
			a = a.Text(unix.NFTA_CHAIN_TABLE, table).Text(unix.NFTA_CHAIN_NAME, c.Chain).Text(unix.NFTA_CHAIN_TYPE, kind)
			a, hook := a.Open(unix.NFTA_CHAIN_HOOK)
			return a.Uint32(unix.NFTA_HOOK_HOOKNUM, c.Hook).Uint32(unix.NFTA_HOOK_PRIORITY, uint32(c.Priority)).Close(hook)
		})
	}
}

// Make creates a chain unless it is there.
func (t *Transaction) Make(table, chain string) {
	t.about(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, chain, func(a nfnetlink.Attributes) nfnetlink.Attributes {
		return a.Text(unix.NFTA_CHAIN_TABLE, table).Text(unix.NFTA_CHAIN_NAME, chain)
	})
}

// Empty tells whether the transaction changes nothing.
func (t *Transaction) Empty() bool { return len(t.chains) == 0 }

// Clear deletes the rules of a chain.
func (t *Transaction) Clear(table, chain string) { t.delete(table, chain, 0) }

// Delete deletes one rule of a chain.
func (t *Transaction) Delete(table, chain string, handle uint64) { t.delete(table, chain, handle) }

func (t *Transaction) delete(table, chain string, handle uint64) {
	t.about(unix.NFT_MSG_DELRULE, 0, chain, func(a nfnetlink.Attributes) nfnetlink.Attributes {
		a = a.Text(unix.NFTA_RULE_TABLE, table).Text(unix.NFTA_RULE_CHAIN, chain)
		if handle != 0 {
			a = a.Add(unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, handle)...)
		}
		return a
	})
}

// Remove deletes a chain that has no rules and that none leads to.
func (t *Transaction) Remove(table, chain string) {
	t.about(unix.NFT_MSG_DELCHAIN, 0, chain, func(a nfnetlink.Attributes) nfnetlink.Attributes {
		return a.Text(unix.NFTA_CHAIN_TABLE, table).Text(unix.NFTA_CHAIN_NAME, chain)
	})
}

// Insert puts a rule before all others of a chain, or right behind the one with the handle after. It returns an error about
// a rule that cannot be written.
func (t *Transaction) Insert(table, chain, text string, after uint64) error {
	if after == 0 {
		return t.rule(table, chain, text, place{}, 0)
	}
	return t.rule(table, chain, text, place{flags: unix.NLM_F_APPEND, after: after}, 0)
}

// place is where a rule comes: at the beginning of its chain, or with NLM_F_APPEND at its end or behind the one with a handle.
type place struct {
	flags int
	after uint64
}

// Append puts rules, each on a line, at the end of a chain, with a tag and the numbers after it (0: none).
// It returns an error about a rule that cannot be written.
func (t *Transaction) Append(table, chain, rules string, tag uint64) error {
	for text := range strings.Lines(rules) {
		if err := t.rule(table, chain, strings.TrimSuffix(text, "\n"), place{flags: unix.NLM_F_APPEND}, tag); err != nil {
			return err
		}
		if tag != 0 {
			tag++
		}
	}
	return nil
}

// tagType is the type of the tag in the user data of a rule. iptables and nft overlook it.
const tagType, tagSize = 'F', 8

func (t *Transaction) rule(table, chain, text string, at place, tag uint64) error {
	r, err := t.read(text, table != "nat" && table != "filter")
	if err != nil {
		return fmt.Errorf("rule of chain %s: %s: %w", chain, text, err)
	}
	t.about(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|at.flags, chain, func(a nfnetlink.Attributes) nfnetlink.Attributes {
		a = a.Text(unix.NFTA_RULE_TABLE, table).Text(unix.NFTA_RULE_CHAIN, chain)
		a, expressions := a.Open(unix.NFTA_RULE_EXPRESSIONS)
		l := list{a}
		r.write(&l)
		a, compat := l.Close(expressions).Open(unix.NFTA_RULE_COMPAT)
		a = a.Uint32(unix.NFTA_RULE_COMPAT_PROTO, uint32(r.protocol)).Uint32(unix.NFTA_RULE_COMPAT_FLAGS, 0).Close(compat)
		if at.after != 0 {
			a = a.Add(unix.NFTA_RULE_POSITION, binary.BigEndian.AppendUint64(nil, at.after)...)
		}
		if tag != 0 {
			a = a.Add(unix.NFTA_RULE_USERDATA, binary.BigEndian.AppendUint64([]byte{tagType, tagSize}, tag)...)
		}
		return a
	})
	return nil
}

// Send has the kernel do it. It returns the kernel's errors, with the chain that the first is about.
func (t *Transaction) Send() error {
	err := t.Transaction.Send()
	var refused *nfnetlink.RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	i, found := slices.BinarySearchFunc(t.chains, refused.Command, func(p part, command int) int { return p.command - command })
	if !found {
		i--
	}
	if i < 0 {
		return fmt.Errorf("transaction of nf_tables: %w", err)
	}
	return fmt.Errorf("chain %s: %w", t.chains[i].chain, err)
}

// Rule is what is read of a rule.
type Rule struct {
	Chain, Target string // Target: the chain that it leads to, if any
	Handle, Tag   uint64 // Tag: 0 if it has none
	plain         bool   // it leads there by -j, with all packets
}

// Text is the rule as iptables-save prints it if it leads all packets to its target by -j, else something
// that no rule of ours is.
func (r Rule) Text() string {
	if !r.plain {
		return "under conditions, or by -g, to " + r.Target
	}
	return "-j " + r.Target
}

// ParseRule reads a rule as the kernel lists it.
func ParseRule(answer []byte) Rule {
	r := Rule{Chain: nfnetlink.Text(answer, unix.NFTA_RULE_CHAIN), plain: true}
	for _, b := range nfnetlink.Find(answer, unix.NFTA_RULE_HANDLE) {
		r.Handle = r.Handle<<8 | uint64(b)
	}
	if data := nfnetlink.Find(answer, unix.NFTA_RULE_USERDATA); len(data) == 2+tagSize && data[0] == tagType && data[1] == tagSize {
		r.Tag = binary.BigEndian.Uint64(data[2:])
	}
	if r.Tag != 0 {
		return r // one of ours
	}
	nfnetlink.Each(nfnetlink.Find(answer, unix.NFTA_RULE_EXPRESSIONS), func(_ uint16, e []byte) {
		verdict := nfnetlink.Find(e, unix.NFTA_EXPR_DATA, unix.NFTA_IMMEDIATE_DATA, unix.NFTA_DATA_VERDICT)
		switch nfnetlink.Text(e, unix.NFTA_EXPR_NAME) {
		case "counter":
		case "immediate":
			code, _ := nfnetlink.Number(verdict, unix.NFTA_VERDICT_CODE)
			r.Target = nfnetlink.Text(verdict, unix.NFTA_VERDICT_CHAIN)
			r.plain = r.plain && int32(code) == unix.NFT_JUMP
		default:
			r.plain = false
		}
	})
	return r
}
