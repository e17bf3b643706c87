// Package addr has the address arithmetic that pools and rules share: address families,
// and ranges as users write them (a CIDR, or the first and the last address).
package addr

import (
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// Family is an IP address family.
type Family uint8

// The two families. The zero value is neither.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families lists both, IPv4 first.
func Families() []Family { return []Family{IPv4, IPv6} }

// FamilyOf tells the family of a valid, unmapped address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// String is IPv4 or IPv6, as Kubernetes spells them.
func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	default:
		return fmt.Sprintf("Family(%d)", uint8(f))
	}
}

// Bits is how long an address of the family is.
func (f Family) Bits() int {
	if f == IPv6 {
		return 128
	}
	return 32
}

// Texts returns addresses, or prefixes, as text; nil for none.
func Texts[A netip.Addr | netip.Prefix](all []A) []string {
	var texts []string
	for _, a := range all {
		texts = append(texts, fmt.Sprint(a))
	}
	return texts
}

// HostPrefix is the prefix that holds this one address: a /32 or a /128.
func HostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Reachable reports whether other machines can reach a Service by the address: it is
// unicast, and neither loopback nor unspecified nor the broadcast address, nor IPv6
// link-local.
func Reachable(a netip.Addr) bool {
	return a.IsGlobalUnicast() || a.Is4() && a.IsLinkLocalUnicast()
}

// Unreachable are the prefixes of all addresses that are not Reachable.
func Unreachable() []netip.Prefix {
	var prefixes []netip.Prefix
	for _, text := range []string{
		"0.0.0.0/32", "127.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::/128", "::1/128", "fe80::/10", "ff00::/8",
	} {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	return prefixes
}

// Everything is all addresses of the family.
func (f Family) Everything() netip.Prefix {
	if f == IPv6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// Loopback is where the hosts of IPv4 talk to themselves (RFC 1122, section 3.2.1.3).
func Loopback() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8) }

// WithoutLoopback summarizes prefixes, and leaves out the addresses of both families by
// which hosts talk to themselves.
func WithoutLoopback(prefixes []netip.Prefix) []netip.Prefix {
	return Summarize(prefixes, Loopback(), HostPrefix(netip.IPv6Loopback()))
}

// ParseRange reads a CIDR ("192.0.2.0/24") or a range ("192.0.2.10-192.0.2.20",
// white space around the dash allowed) of either family. The error names what
// is wrong with the text and is fit to be shown to the user. IPv4-mapped IPv6
// addresses, zones and prefixes with host bits set are refused.
func ParseRange(text string) (netipx.IPRange, error) {
	text = strings.TrimSpace(text)
	if first, last, ok := strings.Cut(text, "-"); ok {
		from, err := parseAddr(first)
		if err != nil {
			return netipx.IPRange{}, fmt.Errorf("range %q: %w", text, err)
		}
		to, err := parseAddr(last)
		if err != nil {
			return netipx.IPRange{}, fmt.Errorf("range %q: %w", text, err)
		}
		if FamilyOf(from) != FamilyOf(to) {
			return netipx.IPRange{}, fmt.Errorf("range %q: its ends are of two families", text)
		}
		if to.Less(from) {
			return netipx.IPRange{}, fmt.Errorf("range %q is reversed: write %s-%s", text, to, from)
		}
		return netipx.IPRangeFrom(from, to), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netipx.IPRange{}, fmt.Errorf("%q is neither a CIDR nor a range first-last", text)
	}
	if prefix.Addr().Is4In6() {
		return netipx.IPRange{}, fmt.Errorf("CIDR %q: write the IPv4 address itself", text)
	}
	if prefix != prefix.Masked() {
		return netipx.IPRange{}, fmt.Errorf("CIDR %q has host bits set: write %s", text, prefix.Masked())
	}
	return netipx.RangeOfPrefix(prefix), nil
}

// ParsePrefixes returns the CIDRs of a text, which separates them by commas, without host bits. The error names the first
// that is none.
func ParsePrefixes(text string) ([]netip.Prefix, error) {
	var found []netip.Prefix
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(one)
		if err != nil {
			return nil, fmt.Errorf("%q is not a CIDR", one)
		}
		found = append(found, prefix.Masked())
	}
	return found, nil
}

func parseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(text))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", strings.TrimSpace(text))
	}
	if a.Is4In6() || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q: write the address without zone or IPv4 mapping", text)
	}
	return a, nil
}

// Size returns how many addresses there are in a range; the greatest int64 if there are more.
func Size(r netipx.IPRange) int64 {
	from, to := r.From().As16(), r.To().As16()
	n := new(big.Int).SetBytes(to[:])
	n.Sub(n, new(big.Int).SetBytes(from[:]))
	if n.Add(n, big.NewInt(1)); !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

// Summarize returns the shortest list of prefixes that covers exactly what the
// given ones cover, but for what is left out, in address order: IPv4 before IPv6.
func Summarize(prefixes []netip.Prefix, without ...netip.Prefix) []netip.Prefix {
	var ranges []netipx.IPRange
	for _, p := range prefixes {
		ranges = append(ranges, netipx.RangeOfPrefix(p))
	}
	return set(ranges, without).Prefixes()
}

// Join returns the shortest list of ranges that covers exactly what the given ones cover, but
// for what is left out, in address order.
func Join(ranges []netipx.IPRange, without ...netip.Prefix) []netipx.IPRange {
	return set(ranges, without).Ranges()
}

func set(ranges []netipx.IPRange, without []netip.Prefix) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, r := range ranges {
		b.AddRange(r)
	}
	for _, p := range without {
		b.RemovePrefix(p)
	}
	whole, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{} // only invalid ranges err, and they cover nothing
	}
	return whole
}
