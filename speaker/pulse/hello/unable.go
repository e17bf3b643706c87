package hello

import (
	"math/bits"
	"net/netip"
	"slices"
)

const (
	additionUnable = 13
	prefixesOfIPv6 = 0x80
	maxAddition    = 255 // its length is a byte
	maxListed      = 255 // so is the number of addresses of a family
)

// form is how a node says which addresses of a family it is unable to serve.
type form uint8

const (
	listed   form = iota // one by one
	byPrefix             // by prefixes with none of the other addresses that nodes are asked to serve
	wholly               // all of the family
)

// fit makes the addresses take no more bytes than there is room for. Those of a family that are
// too many to be listed are told by prefixes: the cause is mostly the same on all nodes, such as an
// interface that none has, and if each said that it is unable to serve any address of the family, no node
// would answer for those that all can serve. That is said only where there are too many prefixes as well,
// of addresses that lie among others. The family that takes more goes first, and the other one
// has no part in that as long as its own fit.
func (s said) fit(room int, claimed []netip.Addr) said {
	if s.fits(room) {
		return s
	}
	others := besides(claimed, s.unable)
	six := firstIPv6(s.unable)
	less, more := inForms(s.unable[:six], others), inForms(s.unable[six:], others)
	if 4*six > 16*(len(s.unable)-six) {
		less, more = more, less
	}
	for _, as := range [][2]form{
		{listed, byPrefix},
		{byPrefix, listed},
		{byPrefix, byPrefix},
		{listed, wholly},
		{byPrefix, wholly},
		{wholly, listed},
		{wholly, byPrefix},
	} {
		if t := s.unableTo(less[as[0]], more[as[1]]); t.fits(room) {
			return t
		}
	}
	return s.unableTo(less[wholly], more[wholly])
}

// fits tells whether there is room for what the node says that it is unable to serve.
func (s said) fits(room int) bool {
	four := firstIPv6(s.unable)
	six := len(s.unable) - four
	return four <= maxListed && six <= maxListed && 4*four+16*six+len(s.appendUnable(nil)) <= max(room, 0)
}

// inForms is what may be said of addresses of one family.
func inForms(unable, others []netip.Addr) [wholly + 1]said {
	six := firstIPv6(unable) == 0
	all := said{unableAny4: !six, unableAny6: six}
	within := all // for older releases, which do not know the addition
	within.unableIn = covering(unable, others)
	return [...]said{listed: {unable: unable}, byPrefix: within, wholly: all}
}

// unableTo is what the node says, with that of each family.
func (s said) unableTo(a, b said) said {
	s.unableAny4, s.unableAny6 = a.unableAny4 || b.unableAny4, a.unableAny6 || b.unableAny6
	s.unable = slices.Concat(a.unable, b.unable)
	slices.SortFunc(s.unable, netip.Addr.Compare)
	s.unableIn = slices.Concat(a.unableIn, b.unableIn)
	slices.SortFunc(s.unableIn, netip.Prefix.Compare)
	return s
}

// plain gives valid addresses unmapped, without zones, in order, each once.
func plain(addrs []netip.Addr) []netip.Addr {
	var all []netip.Addr
	for _, a := range addrs {
		if a = a.Unmap().WithZone(""); a.IsValid() {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// besides gives the claimed addresses that are not among those, sorted.
func besides(claimed, unable []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(plain(claimed), func(a netip.Addr) bool {
		_, is := slices.BinarySearchFunc(unable, a, netip.Addr.Compare)
		return is
	})
}

// firstIPv6 is where those begin among sorted addresses: the order of netip.Addr has IPv4 first.
func firstIPv6(sorted []netip.Addr) int {
	if i := slices.IndexFunc(sorted, netip.Addr.Is6); i >= 0 {
		return i
	}
	return len(sorted)
}

// covering gives the fewest prefixes that have all of these addresses and none of the others, each as long
// as it can be, in order. Both are sorted, have each address once, and have none in common.
func covering(unable, others []netip.Addr) []netip.Prefix {
	var all []netip.Prefix
	for _, a := range unable {
		if last := len(all) - 1; last >= 0 {
			if p := joint(all[last].Addr(), a); p.IsValid() && !hasAny(p, others) {
				all[last] = p
				continue
			}
		}
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return all
}

// joint is the longest prefix that has both addresses; there is none if they are of two families.
func joint(a, b netip.Addr) netip.Prefix {
	if a.BitLen() != b.BitLen() {
		return netip.Prefix{}
	}
	length, x, y := 0, a.As16(), b.As16()
	for i := range x {
		alike := bits.LeadingZeros8(x[i] ^ y[i])
		if length += alike; alike < 8 {
			break
		}
	}
	length -= 8*len(x) - a.BitLen()
	return netip.PrefixFrom(a, length).Masked()
}

// hasAny tells whether a prefix has any of the addresses, which are sorted.
func hasAny(p netip.Prefix, addrs []netip.Addr) bool {
	i, _ := slices.BinarySearchFunc(addrs, p.Addr(), netip.Addr.Compare)
	return i < len(addrs) && p.Contains(addrs[i])
}

// appendUnable adds the additions of the prefixes: the number of bytes that all of an addition begin with,
// 128 more if they are of IPv6, these bytes, and of each prefix its length and as many further bytes as
// have a bit of it. Those of one network share an addition, which takes less that way.
func (s said) appendUnable(b []byte) []byte {
	for rest := s.unableIn; len(rest) > 0; {
		some := rest[:together(rest)]
		rest = rest[len(some):]
		first, shared := some[0].Addr(), sharedBytes(some)
		head := byte(shared)
		if first.Is6() {
			head |= prefixesOfIPv6
		}
		b = append(b, additionUnable, byte(unableSize(some)), head)
		b = append(b, first.AsSlice()[:shared]...)
		for _, p := range some {
			b = append(b, byte(p.Bits()))
			b = append(b, p.Addr().AsSlice()[shared:bytesOf(p)]...)
		}
	}
	return b
}

// together is how many of the prefixes, from the first on, share an addition.
func together(in []netip.Prefix) int {
	n, size := 1, unableSize(in[:1])
	for n < len(in) && in[n].Addr().BitLen() == in[0].Addr().BitLen() {
		next := unableSize(in[:n+1])
		if next > maxAddition || next > size+additionHead+unableSize(in[n:n+1]) {
			break
		}
		n, size = n+1, next
	}
	return n
}

// bytesOf is how many bytes have a bit of a prefix.
func bytesOf(p netip.Prefix) int { return (p.Bits() + 7) / 8 }

// sharedBytes is how many bytes all of the prefixes begin with. They are sorted and disjoint, so that
// those between the first and the last begin with what these have in common.
func sharedBytes(some []netip.Prefix) int {
	first, last := some[0], some[len(some)-1]
	return min(first.Bits(), joint(first.Addr(), last.Addr()).Bits()) / 8
}

// unableSize is how many bytes an addition of the prefixes has.
func unableSize(some []netip.Prefix) int {
	shared := sharedBytes(some)
	size := 1 + shared
	for _, p := range some {
		size += 1 + bytesOf(p) - shared
	}
	return size
}

// withUnable reads one such addition. One that is not to be understood is left out.
func (s said) withUnable(b []byte) said {
	in, ok := decodeUnable(b)
	if !ok {
		return s
	}
	s.unableIn = slices.Concat(s.unableIn, in)
	slices.SortFunc(s.unableIn, netip.Prefix.Compare)
	var last netip.Prefix
	s.unableIn = slices.DeleteFunc(s.unableIn, func(p netip.Prefix) bool {
		if last.Overlaps(p) { // whose order is that of their sizes, too
			return true
		}
		last = p
		return false
	})
	return s
}

func decodeUnable(b []byte) (in []netip.Prefix, ok bool) {
	if len(b) == 0 {
		return nil, false
	}
	shared, size := int(b[0]&^prefixesOfIPv6), 4
	if b[0]&prefixesOfIPv6 != 0 {
		size = 16
	}
	if b = b[1:]; shared > min(size, len(b)) {
		return nil, false
	}
	begin, b := b[:shared], b[shared:]
	for len(b) > 0 {
		var address [16]byte
		length := int(b[0])
		further := (length+7)/8 - shared
		if b = b[1:]; length < 8*shared || length > 8*size || further > len(b) {
			return nil, false
		}
		copy(address[:], begin)
		copy(address[shared:], b[:further])
		a, _ := netip.AddrFromSlice(address[:size])
		p := netip.PrefixFrom(a, length).Masked()
		if p.Addr().Is4In6() {
			return nil, false
		}
		in, b = append(in, p), b[further:]
	}
	return in, true
}

// isUnableIn tells whether the node says that it is unable to serve all of a prefix with the address.
func (m Member) isUnableIn(a netip.Addr) bool {
	i, begins := slices.BinarySearchFunc(m.UnableIn, a, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	return begins || i > 0 && m.UnableIn[i-1].Contains(a)
}
