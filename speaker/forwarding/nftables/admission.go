package nftables

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
)

// A VIP and the source of a packet are looked up in a set of plain keys, once for each length that the
// VIP's prefixes have, with the source cut off at that length. A set of intervals would take one look-up,
// but some kernels find in it what it does not have (ADR 54).

// lengths are those of prefixes, a byte for each, the longest first.
type lengths string

// mostLengths is how many lengths have a chain of their own. With more, all that there are are looked up,
// lest source ranges make the kernel hold any number of chains.
const mostLengths = 6

// lengthsOf are the lengths to look up for prefixes.
func (l *layout) lengthsOf(prefixes []netip.Prefix) lengths {
	all := make([]byte, 0, len(prefixes))
	for _, p := range prefixes {
		all = append(all, byte(p.Bits()))
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) > mostLengths {
		all = all[:0]
		for bits := range l.Family.Bits() + 1 {
			all = append(all, byte(bits))
		}
	}
	slices.Reverse(all)
	return lengths(all)
}

// guard begins the name of the chain that looks these lengths up.
func (n lengths) guard() string {
	if len(n) > mostLengths {
		return "guarded-any-"
	}
	name := []byte("guarded-")
	for _, bits := range []byte(n) {
		name = fmt.Appendf(name, "%d-", bits)
	}
	return string(name)
}

// admissions are the elements that admit prefixes, none of them within another, to a destination.
func admissions(destination string, prefixes []netip.Prefix) []element {
	elements := make([]element, 0, len(prefixes))
	for _, p := range prefixes {
		elements = append(elements, element{item{ranges, destination + word(uint32(p.Bits())) + string(p.Addr().AsSlice())}, ""})
	}
	return elements
}

// admit sends what the VIP admits to a chain, and drops the rest.
func (l *layout) admit(n lengths, to string) []rule {
	rules := make([]rule, 0, len(n)+1)
	for _, bits := range []byte(n) {
		rules = append(rules, rule{Says: fmt.Sprintf("sources that /%d admits", bits), Exprs: flat(l.ifAdmitted(bits), goTo(to))})
	}
	return append(rules, rule{Says: "others", Exprs: drop()})
}

// ifAdmitted ends the rule unless the source is in a prefix of this length that the VIP admits.
func (l *layout) ifAdmitted(bits byte) []expr.Any {
	// The nft program cannot show a constant here, but a mark that has all bits replaced.
	at := l.behind(byAddress)
	length := []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: reg(at)}, bitwise(at, 0, uint32(bits))}
	return flat(l.destination(byAddress), length, l.sourcePrefix(l.behind(byAddress)+1, int(bits)), l.find(ranges, false))
}

// sourcePrefix loads the source with all but its first bits zero.
func (l *layout) sourcePrefix(at uint32, bits int) []expr.Any {
	all := l.Family.Bits()
	if bits == all {
		return l.source(at)
	}
	return append(l.source(at), &expr.Bitwise{
		SourceRegister: reg(at), DestRegister: reg(at), Len: 4 * l.words(), Mask: net.CIDRMask(bits, all), Xor: make([]byte, all/8),
	})
}
