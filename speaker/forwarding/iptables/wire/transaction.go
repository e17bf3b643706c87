// Package wire writes rules of iptables-nft to the kernel without iptables: the same bytes,
// in a fraction of the time. It knows the kinds of rules of which there are many.
package wire

import (
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
	"fairlead.dev/fairlead/speaker/forwarding/nfnetlink"
)

// Transaction changes chains of a table that iptables has made: all, or none if it fails.
type Transaction struct {
	*nfnetlink.Transaction

	family addr.Family
	table  string
	socket *nfnetlink.Conn // to ask for the sets that rules name
	sets   map[string]uint16
}

// New begins one that will be about so many bytes long. The sets that rules name are asked for
// over the socket.
func New(family addr.Family, table string, size int, socket *nfnetlink.Conn) *Transaction {
	return &Transaction{
		Transaction: nfnetlink.NewTransaction(unix.NFNL_SUBSYS_NFTABLES, family, size),
		family:      family, table: table, socket: socket, sets: map[string]uint16{},
	}
}

// Reset begins another one, in the same place.
func (t *Transaction) Reset() {
	t.Transaction.Reset()
	clear(t.sets)
}

// index is that of a set.
func (t *Transaction) index(set string) (uint16, bool) {
	index, known := t.sets[set]
	if known {
		return index, true
	}
	index, err := ipset.Index(t.socket, set)
	if err == nil {
		t.sets[set] = index
	}
	return index, err == nil
}

// Fill puts rules, each on a line and without its chain, into a chain that is empty. It does
// nothing and returns false if one of them is of a kind that this package does not know.
func (t *Transaction) Fill(chain, rules string) bool {
	before := *t.Transaction
	for text := range strings.Lines(rules) {
		r, ok := read(t.family, t.index, strings.TrimSuffix(text, "\n"))
		if !ok {
			*t.Transaction = before
			return false
		}
		t.Add(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, func(a nfnetlink.Attributes) nfnetlink.Attributes {
			a = a.Text(unix.NFTA_RULE_TABLE, t.table).Text(unix.NFTA_RULE_CHAIN, chain)
			a, expressions := a.Open(unix.NFTA_RULE_EXPRESSIONS)
			l := list{a}
			r.write(&l)
			a, compat := l.Close(expressions).Open(unix.NFTA_RULE_COMPAT)
			return a.Uint32(unix.NFTA_RULE_COMPAT_PROTO, uint32(r.protocol)).Uint32(unix.NFTA_RULE_COMPAT_FLAGS, 0).Close(compat)
		})
	}
	return true
}

// Replace is Fill for a chain that may have rules, or not be there.
func (t *Transaction) Replace(chain, rules string) bool {
	before := *t.Transaction
	t.Add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, func(a nfnetlink.Attributes) nfnetlink.Attributes {
		return a.Text(unix.NFTA_CHAIN_TABLE, t.table).Text(unix.NFTA_CHAIN_NAME, chain)
	})
	t.Add(unix.NFT_MSG_DELRULE, 0, func(a nfnetlink.Attributes) nfnetlink.Attributes {
		return a.Text(unix.NFTA_RULE_TABLE, t.table).Text(unix.NFTA_RULE_CHAIN, chain)
	})
	if !t.Fill(chain, rules) {
		*t.Transaction = before
		return false
	}
	return true
}
