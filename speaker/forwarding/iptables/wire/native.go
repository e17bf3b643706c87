package wire

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// choose is one of two verdicts: that in a table of iptables, or that in one that nf_tables alone knows, where the
// targets of iptables' nat table cannot be.
func (r *rule) choose(iptables, native func(l *list)) func(l *list) {
	if r.native {
		return native
	}
	return iptables
}

// unreached is in place of what masquerades: in such a table nothing leads there.
func unreached(l *list) { l.verdict(unix.NFT_RETURN, "") }

// translateNatively is what translate is, as expressions of nf_tables.
func (l *list) translateNatively(family addr.Family, to netip.AddrPort) {
	immediate := func(register uint32, value ...byte) {
		l.expression("immediate", func() {
			l.number(unix.NFTA_IMMEDIATE_DREG, register)
			l.value(unix.NFTA_IMMEDIATE_DATA, value...)
		})
	}
	immediate(register, to.Addr().AsSlice()...)
	if to.Port() != 0 {
		immediate(unix.NFT_REG_2, byte(to.Port()>>8), byte(to.Port()))
	}
	l.nat(family, to.Port() != 0)
}

// keep has the kernel keep the destination, and ask no other chain what to translate it to.
func (l *list) keep(family addr.Family) {
	l.load(unix.NFT_PAYLOAD_NETWORK_HEADER, destinationAt[family], uint32(family.Bits()/8))
	l.nat(family, false)
}

func (l *list) nat(family addr.Family, port bool) {
	l.expression("nat", func() {
		l.number(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT)
		l.number(unix.NFTA_NAT_FAMILY, uint32(nfnetlink.Protocol(family)))
		l.number(unix.NFTA_NAT_REG_ADDR_MIN, register)
		if port {
			l.number(unix.NFTA_NAT_REG_PROTO_MIN, unix.NFT_REG_2)
		}
	})
}
