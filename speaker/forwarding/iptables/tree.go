package iptables

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/view"
)

// A tree finds the chain for a destination in a few steps, however many
// destinations there are: each chain splits them by three more bits of address,
// then by protocol, then by three more bits of port, until few enough are left
// to be listed. Levels at which all destinations agree are skipped.
//
// What a tree renders depends on the destinations in it and not on the order in
// which they came, and a change marks only the chains on its own path.
type tree struct {
	root    *node
	shape   shape
	retired []string // chains published before, not wanted any more
}

// shape is what the chains of one tree have in common.
type shape struct {
	root   string // name of the root's chain
	prefix string // begins the names of the others
	bits   int    // of an address; 0 when destinations are ports alone
	leaf   int    // rules that a chain may list before it is split; a destination has no more
}

// destination is what a packet is addressed to. addr is invalid in a tree of ports alone.
type destination struct {
	addr     netip.Addr
	protocol view.Protocol
	port     uint16
}

// target is where packets for a destination go, and the Service that they are for.
type target struct {
	chain, comment string
	verdicts       string // what happens to them in place of a chain, a rule each line
	rank           int    // of the port, see desired.Port
}

// rules is how many a destination takes in the chain that lists it.
func (t target) rules() int { return strings.Count(t.verdicts, "\n") + 1 }

type entry struct {
	destination
	target
}

const stride = 3 // bits that one level splits by

// node holds the destinations that share their first level digits. It lists
// them if they are few, else it splits them by their next digit.
type node struct {
	level   int
	rules   int         // that the destinations below take
	sample  destination // one that is or was below: its first level digits are those of all
	entries []entry     // of a leaf, sorted
	kids    []*node     // by digit; nil of a leaf
	dirty   bool
	name    string // of the chain it was last published as, "" if none
}

func newTree(s shape) *tree { return &tree{root: &node{dirty: true}, shape: s} }

func (t *tree) set(d destination, to target) {
	t.insert(t.root, entry{d, to})
}

// insert tells how many more rules there are below n.
func (t *tree) insert(n *node, e entry) (more int) {
	n.dirty = true
	if n.kids != nil {
		more = t.insert(t.kid(n, e.destination), e)
		n.rules += more
		if n.rules <= t.shape.leaf {
			t.collapse(n)
		}
		return more
	}
	more = e.rules()
	i, found := slices.BinarySearchFunc(n.entries, e.destination, compareEntry)
	if found {
		more -= n.entries[i].rules()
		n.entries[i] = e
	} else {
		n.entries = slices.Insert(n.entries, i, e)
	}
	n.rules += more
	if n.rules > t.shape.leaf && n.level < t.shape.depth() {
		t.split(n)
	}
	return more
}

// kid is the node below n for a destination.
func (t *tree) kid(n *node, d destination) *node {
	kid := &n.kids[t.shape.digit(d, n.level)]
	if *kid == nil {
		*kid = &node{level: n.level + 1, sample: d}
	}
	return *kid
}

func (t *tree) split(n *node) {
	entries := n.entries
	n.entries, n.kids = nil, make([]*node, 1<<stride)
	for _, e := range entries {
		t.insert(t.kid(n, e.destination), e)
	}
}

func (t *tree) unset(d destination) { t.remove(t.root, d) }

// remove tells how many rules fewer there are below n.
func (t *tree) remove(n *node, d destination) (fewer int) {
	if n.kids == nil {
		i, found := slices.BinarySearchFunc(n.entries, d, compareEntry)
		if !found {
			return 0
		}
		fewer = n.entries[i].rules()
		n.entries = slices.Delete(n.entries, i, i+1)
		n.rules -= fewer
		n.dirty = true
		return fewer
	}
	kid := &n.kids[t.shape.digit(d, n.level)]
	if *kid == nil {
		return 0
	}
	if fewer = t.remove(*kid, d); fewer == 0 {
		return 0
	}
	n.rules -= fewer
	n.dirty = true
	if (*kid).rules == 0 {
		t.retire(*kid)
		*kid = nil
	}
	if n.rules <= t.shape.leaf {
		t.collapse(n)
	}
	return fewer
}

// collapse makes a leaf of n.
func (t *tree) collapse(n *node) {
	var entries []entry
	for _, kid := range n.kids {
		if kid != nil {
			entries = append(entries, kid.all()...)
			t.retire(kid)
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return compareEntry(a, b.destination) })
	n.entries, n.kids = entries, nil
}

func (n *node) all() []entry {
	entries := slices.Clone(n.entries)
	for _, kid := range n.kids {
		if kid != nil {
			entries = append(entries, kid.all()...)
		}
	}
	return entries
}

func (t *tree) retire(n *node) {
	if n.name != "" {
		t.retired = append(t.retired, n.name)
	}
	for _, kid := range n.kids {
		if kid != nil {
			t.retire(kid)
		}
	}
}

// publish calls drop for each chain that vanished since the last call and then
// set for each that appeared or may have changed.
func (t *tree) publish(set func(chain string, rules []string), drop func(chain string)) {
	var changed []*node
	t.collect(t.root, &changed)
	for _, name := range t.retired {
		drop(name)
	}
	t.retired = nil
	for _, n := range changed {
		set(n.name, t.rules(n))
	}
}

// collect names the chains below n anew and gathers those to write. Whatever is
// dirty has only dirty nodes above it.
func (t *tree) collect(n *node, changed *[]*node) {
	if !n.dirty {
		return
	}
	n.dirty = false
	name := ""
	switch {
	case n == t.root:
		name = t.shape.root
	case n.only() == nil:
		name = t.shape.chain(n.sample, n.level)
	}
	if n.name != name && n.name != "" {
		t.retired = append(t.retired, n.name)
	}
	n.name = name
	if name != "" {
		*changed = append(*changed, n)
	}
	for _, kid := range n.kids {
		if kid != nil {
			t.collect(kid, changed)
		}
	}
}

// only is the single kid of n, nil if n has several or is a leaf.
func (n *node) only() *node {
	var only *node
	for _, kid := range n.kids {
		switch {
		case kid == nil:
		case only != nil:
			return nil
		default:
			only = kid
		}
	}
	return only
}

func (t *tree) rules(n *node) []string {
	var rules []string
	if n.kids == nil {
		for _, e := range n.entries {
			comment := ""
			if e.comment != "" {
				comment = fmt.Sprintf(" -m comment --comment %q", e.comment)
			}
			match := t.shape.match(e.destination, n.level, t.shape.depth())
			for verdict := range strings.SplitSeq(cmp.Or(e.verdicts, "-g "+e.chain), "\n") {
				rules = append(rules, match+comment+" "+verdict)
			}
		}
		return rules
	}
	for _, kid := range n.kids {
		if kid == nil {
			continue
		}
		for kid.only() != nil {
			kid = kid.only()
		}
		rules = append(rules, fmt.Sprintf("%s -g %s", t.shape.match(kid.sample, n.level, kid.level), kid.name))
	}
	return rules
}

// A destination is a row of digits: those of the address, one for the protocol, those of
// the port. The first of a number is of what bits the others leave, so that the last level
// has all eight neighbours: most clusters give addresses and ports in rows.

func (s shape) addrDigits() int { return digitsOf(s.bits) }

const portBits = 16

// digitsOf is how many digits a number of some bits has.
func digitsOf(bits int) int { return (bits + stride - 1) / stride }

// shared is how many of its bits the first digits of a number have.
func shared(bits, digits int) int {
	if digits == 0 {
		return 0
	}
	return bits - (digitsOf(bits)-digits)*stride
}

func (s shape) depth() int { return s.addrDigits() + 1 + digitsOf(portBits) }

func (s shape) digit(d destination, level int) int {
	n := s.addrDigits()
	switch {
	case level < n:
		return bitsBetween(d.addr.AsSlice(), shared(s.bits, level), shared(s.bits, level+1))
	case level == n:
		return max(slices.Index([]view.Protocol{view.TCP, view.UDP, view.SCTP}, d.protocol), -1) + 1
	default:
		level -= n + 1
		return bitsBetween([]byte{byte(d.port >> 8), byte(d.port)}, shared(portBits, level), shared(portBits, level+1))
	}
}

// bitsBetween reads the bits from one position up to another one.
func bitsBetween(b []byte, from, to int) int {
	digit := 0
	for i := from; i < to; i++ {
		digit = digit<<1 | int(b[i/8]>>(7-i%8))&1
	}
	return digit
}

// match renders the condition that a packet that already shares the first from
// digits of d shares the first to as well.
func (s shape) match(d destination, from, to int) string {
	var b strings.Builder
	n := s.addrDigits()
	if from < n {
		fmt.Fprintf(&b, " -d %s", s.prefixOf(d, to))
	}
	if to > n {
		protocol := strings.ToLower(string(d.protocol))
		fmt.Fprintf(&b, " -p %s", protocol)
		first, last := portRange(d.port, to-n-1)
		switch {
		case first == last:
			fmt.Fprintf(&b, " -m %s --dport %d", protocol, first)
		case to > n+1:
			fmt.Fprintf(&b, " -m %s --dport %d:%d", protocol, first, last)
		}
	}
	return strings.TrimPrefix(b.String(), " ")
}

func (s shape) prefixOf(d destination, level int) netip.Prefix {
	return netip.PrefixFrom(d.addr, shared(s.bits, min(level, s.addrDigits()))).Masked()
}

// portRange has the ports whose first digits are those of port.
func portRange(port uint16, digits int) (first, last uint16) {
	low := uint16(1)<<(portBits-shared(portBits, digits)) - 1
	return port &^ low, port | low
}

// chain names the chain of the destinations that share the first level digits
// of d: readable where that fits into a chain's name, else a hash of it.
func (s shape) chain(d destination, level int) string {
	text := ""
	if n := s.addrDigits(); n > 0 {
		p := s.prefixOf(d, level)
		text = fmt.Sprintf("%x/%d", p.Addr().AsSlice(), p.Bits())
	}
	if n := s.addrDigits(); level > n {
		first, last := portRange(d.port, level-n-1)
		text = fmt.Sprintf("%s%s%d-%d", text, strings.ToLower(string(d.protocol)), first, last)
	}
	if len(s.prefix)+len(text) > maxChainName {
		text = digest(text)
	}
	return s.prefix + text
}

func compareEntry(e entry, d destination) int {
	return cmp.Or(e.addr.Compare(d.addr), cmp.Compare(e.protocol, d.protocol), cmp.Compare(e.port, d.port))
}
