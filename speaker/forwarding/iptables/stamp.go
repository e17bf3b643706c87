package iptables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/forwarding/nfnetlink"
)

// The rule of the chain STAMP matches two addresses, the last four bytes of which are the halves
// of a digest of all other chains. A comment would read better. But before it takes an extension of
// iptables, as comments are, the kernel waits until what was taken away last is destroyed, some
// 10 ms: the table filter would wait for nat at each change.
func stampRule(family addr.Family, sum uint64) string {
	half := func(n uint64) netip.Prefix {
		a := [16]byte{0: 0xfd}
		binary.BigEndian.PutUint32(a[12:], uint32(n))
		if family == addr.IPv4 {
			return addr.HostPrefix(netip.AddrFrom4([4]byte(a[12:])))
		}
		return addr.HostPrefix(netip.AddrFrom16(a))
	}
	return fmt.Sprintf("-s %s -d %s", half(sum>>32), half(sum))
}

// parseStamp is the digest that a rule of iptables-save tells, 0 if that is no such rule.
func parseStamp(rule string) uint64 {
	fields := strings.Fields(rule)
	if len(fields) != 4 || fields[0] != "-s" || fields[2] != "-d" {
		return 0
	}
	var sum uint64
	for _, field := range []string{fields[1], fields[3]} {
		p, err := netip.ParsePrefix(field)
		if err != nil || !p.IsSingleIP() {
			return 0
		}
		sum = withHalf(sum, p.Addr().AsSlice())
	}
	return sum
}

// stampOf is parseStamp of a rule as nf_tables has it.
func stampOf(rule []byte) uint64 {
	var sum uint64
	halves := 0
	nfnetlink.Each(nfnetlink.Find(rule, unix.NFTA_RULE_EXPRESSIONS), func(_ uint16, e []byte) {
		if nfnetlink.Text(e, unix.NFTA_EXPR_NAME) != "cmp" {
			return
		}
		halves++
		sum = withHalf(sum, nfnetlink.Find(e, unix.NFTA_EXPR_DATA, unix.NFTA_CMP_DATA, unix.NFTA_DATA_VALUE))
	})
	if halves != 2 {
		return 0
	}
	return sum
}

// withHalf appends the half of a digest that is in an address.
func withHalf(sum uint64, address []byte) uint64 {
	if len(address) < 4 {
		return 0
	}
	return sum<<32 | uint64(binary.BigEndian.Uint32(address[len(address)-4:]))
}
