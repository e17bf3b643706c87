package hello

import (
	"errors"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// ranges are addresses, sorted and disjoint.
type ranges []netipx.IPRange

// contains tells whether an address is in one of them.
func (r ranges) contains(a netip.Addr) bool {
	_, is := slices.BinarySearchFunc(r, a, func(in netipx.IPRange, a netip.Addr) int {
		if in.Contains(a) {
			return 0
		}
		return in.From().Compare(a)
	})
	return is
}

// isRange is set in the first byte of a range of more than one address.
const isRange = 0x80

// MarshalBinary is of encoding.BinaryMarshaler, and never fails. Of each range there is the first address and, if it is not alone,
// the last: how many bytes of the address before it begins with, IPv4 mapped to IPv6, and the others.
func (r ranges) MarshalBinary() (b []byte, err error) {
	last := netip.IPv4Unspecified().As16()
	add := func(flag byte, a netip.Addr) {
		next, shared := a.As16(), 0
		for shared < len(next) && next[shared] == last[shared] {
			shared++
		}
		b = append(append(b, flag|byte(shared)), next[shared:]...)
		last = next
	}
	for _, in := range r {
		if in.From() == in.To() {
			add(0, in.From())
		} else {
			add(isRange, in.From())
			add(0, in.To())
		}
	}
	return b, nil
}

// UnmarshalBinary is of encoding.BinaryUnmarshaler. It returns an error for what is not to be read, and for what
// is not in order.
func (r *ranges) UnmarshalBinary(b []byte) error {
	last, from := netip.IPv4Unspecified().As16(), netip.Addr{}
	*r = nil
	for len(b) > 0 {
		flag, shared := b[0]&isRange, int(b[0]&^isRange)
		if shared > len(last) || len(b) <= len(last)-shared {
			return errors.New("a range is cut short")
		}
		b = b[1+copy(last[shared:], b[1:]):]
		to := netip.AddrFrom16(last).Unmap()
		if !from.IsValid() {
			from = to
		}
		if flag != 0 {
			continue
		}
		in := netipx.IPRangeFrom(from, to)
		if !in.IsValid() || len(*r) > 0 && (*r)[len(*r)-1].To().Compare(from) >= 0 {
			return errors.New("ranges are not in order")
		}
		*r, from = append(*r, in), netip.Addr{}
	}
	if from.IsValid() {
		return errors.New("a range does not end")
	}
	return nil
}

// fit makes the addresses that the node is unable to serve take no more bytes than there is room for. Where they are too many, ranges
// have others between them, but none that nodes are asked to serve: the cause is mostly the same on all nodes, such
// as an interface that none has, and if each said that it is unable to serve any address of the family, no node would
// answer for those that all can serve. That is said only where there are too many ranges as well, first of the family
// that takes more.
func (s said) fit(room int, unable, claimed []netip.Addr) said {
	others := slices.DeleteFunc(plain(claimed), func(a netip.Addr) bool {
		_, is := slices.BinarySearchFunc(unable, a, netip.Addr.Compare)
		return is
	})
	s.Unable = joined(unable, func(a, b netip.Addr) bool { return a.Next() == b })
	if s.fits(room) {
		return s
	}
	s.Unable = joined(unable, func(a, b netip.Addr) bool {
		i, _ := slices.BinarySearchFunc(others, a, netip.Addr.Compare)
		return a.BitLen() == b.BitLen() && (i == len(others) || b.Less(others[i]))
	})
	if s.fits(room) {
		return s
	}
	at := slices.IndexFunc(s.Unable, func(in netipx.IPRange) bool { return in.From().Is6() })
	if at < 0 {
		at = len(s.Unable)
	}
	four, six := s.Unable[:at], s.Unable[at:]
	every4, every6 := every("0.0.0.0/0", four), every("::/0", six)
	less, more := slices.Concat(four, every6), slices.Concat(every4, six)
	if len(encoded(four)) > len(encoded(six)) {
		less, more = more, less
	}
	for _, s.Unable = range []ranges{less, more} {
		if s.fits(room) {
			return s
		}
	}
	s.Unable = slices.Concat(every4, every6)
	return s
}

// fits tells whether there is room for what the node says that it is unable to serve.
func (s said) fits(room int) bool { return len(encoded(said{Unable: s.Unable})) <= room }

// every is all of a family, if some of it is.
func every(family string, some ranges) ranges {
	if len(some) == 0 {
		return nil
	}
	return ranges{netipx.RangeOfPrefix(netip.MustParsePrefix(family))}
}

// joined makes ranges of sorted addresses, each with all that join the one before them.
func joined(addrs []netip.Addr, joins func(before, a netip.Addr) bool) (all ranges) {
	for _, a := range addrs {
		from, last := a, len(all)-1
		if last >= 0 && joins(all[last].To(), a) {
			from, all = all[last].From(), all[:last]
		}
		all = append(all, netipx.IPRangeFrom(from, a))
	}
	return all
}
