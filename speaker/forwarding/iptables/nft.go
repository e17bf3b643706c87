package iptables

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/forwarding/iptables/wire"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
	"fairlead.dev/fairlead/speaker/outcome"
)

// writeNFT writes what differs in both tables to nf_tables, in one transaction and without iptables. It returns
// the kernel's errors.
func (f *family) writeNFT() error {
	tx := wire.New(f.family, f.nat.table.size()+f.filter.table.size(), &f.socket)
	for _, t := range f.tables() {
		if err := t.encode(tx); err != nil {
			return err
		}
	}
	if err := f.send(tx); err != nil {
		f.sets.forget() // the reason may be that one is gone
		return err
	}
	for _, t := range f.tables() {
		t.written()
	}
	return nil
}

// send commits a transaction if there is anything in it.
func (f *family) send(tx *wire.Transaction) error {
	if tx.Empty() {
		return nil
	}
	return absent(f.watch.generation.Write(func() (commits int, err error) {
		if err := tx.Send(); err != nil {
			return 0, err
		}
		return 1, nil
	}))
}

// natPriority is that of the chains by which iptables translates destinations.
const natPriority = -100

// baseChains are the built-in chains of the tables, as iptables-nft makes them, and those of firstTable.
var baseChains = map[string][]wire.Base{
	firstTable: {
		{Chain: "PREROUTING", Hook: unix.NF_INET_PRE_ROUTING, Priority: natPriority - 1},
		{Chain: "OUTPUT", Hook: unix.NF_INET_LOCAL_OUT, Priority: natPriority - 1},
	},
	"nat": {
		{Chain: "PREROUTING", Hook: unix.NF_INET_PRE_ROUTING, Priority: natPriority},
		{Chain: "INPUT", Hook: unix.NF_INET_LOCAL_IN, Priority: 100},
		{Chain: "OUTPUT", Hook: unix.NF_INET_LOCAL_OUT, Priority: natPriority},
		{Chain: "POSTROUTING", Hook: unix.NF_INET_POST_ROUTING, Priority: 100},
	},
	"filter": {
		{Chain: "INPUT", Hook: unix.NF_INET_LOCAL_IN}, {Chain: "FORWARD", Hook: unix.NF_INET_FORWARD}, {Chain: "OUTPUT", Hook: unix.NF_INET_LOCAL_OUT},
	},
}

// size is about how many bytes a transaction has that writes the differences.
func (t *table) size() int {
	const ofRule, ofChain = 480, 160
	write, _ := t.differences()
	n := 4096
	for _, name := range write {
		n += ofChain + ofRule*t.want[name].rules
	}
	return n
}

// encode adds what differs to a transaction. It returns an error about a rule that cannot be written.
func (t *table) encode(tx *wire.Transaction) error {
	write, remove := t.differences()
	write = t.byWay(write)
	if t.unmade {
		tx.MakeTable(t.name, baseChains[t.name])
	}
	for _, name := range write {
		if _, exists := t.kernel[name]; !exists {
			tx.Make(t.name, name)
		}
	}
	for _, j := range t.stray {
		tx.Delete(t.name, j.from, j.handle)
	}
	for _, name := range write {
		if err := t.put(tx, name); err != nil {
			return err
		}
	}
	for _, name := range remove {
		tx.Clear(t.name, name)
	}
	for _, name := range remove {
		tx.Remove(t.name, name)
	}
	for _, j := range t.absent {
		_, after := t.behind(j.from)
		if err := tx.Insert(t.name, j.from, j.rule, after); err != nil {
			return err
		}
	}
	return nil
}

// byWay sorts wanted chains such that each comes right after those that it leads to, and lies beside them in
// the kernel's memory: at each change that looks at all of them, which takes half as long again otherwise.
func (t *table) byWay(names []string) []string {
	sorted := make([]string, 0, len(names))
	pending := make(map[string]bool, len(names))
	for _, name := range names {
		pending[name] = true
	}
	var visit func(name string)
	visit = func(name string) {
		if !pending[name] {
			return
		}
		pending[name] = false
		for line := range strings.Lines(t.want[name].text()) {
			visit(leadsTo(strings.TrimSuffix(line, "\n")))
		}
		sorted = append(sorted, name)
	}
	for _, name := range names {
		visit(name)
	}
	return sorted
}

// put adds the wanted rules of a chain to a transaction, in place of those that it has.
func (t *table) put(tx *wire.Transaction, name string) error {
	if t.kernel[name] != (content{}) {
		tx.Clear(t.name, name)
	}
	return tx.Append(t.name, name, t.want[name].text(), t.want[name].sum)
}

// cleanupNFT removes all that is ours from the tables of nf_tables. It returns the kernel's errors.
func cleanupNFT(family addr.Family) error {
	socket := &nfnetlink.Conn{}
	tx := wire.New(family, 4096, socket)
	for _, name := range []string{"nat", "filter"} {
		t := newTable(name, nil) // in which nothing is wanted
		s, err := t.fullCheck(socket, family)
		if err != nil {
			return err
		}
		t.compare(s, false)
		if err := t.encode(tx); err != nil {
			return err
		}
	}
	if tx.Empty() {
		return nil
	}
	if err := tx.Send(); err != nil {
		return fmt.Errorf("remove rules of %s: %w", family, err)
	}
	return nil
}

// absent names the cause where the kernel has no nf_tables, or not for the family.
func absent(err error) error {
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return outcome.Caused(outcome.ReasonFeatureMissing, err)
	}
	return err
}
