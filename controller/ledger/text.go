package ledger

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/internal/view"
)

// shardBits are how many bits of an address its shard leaves open: 256 addresses are a page,
// of 20 kB mostly, and 100 kB at most.
const shardBits = 8

// Shard is the prefix of all addresses that are on one page: an IPv4 /24, an IPv6 /120.
func Shard(a netip.Addr) netip.Prefix {
	shard, err := a.Prefix(a.BitLen() - shardBits)
	if err != nil {
		return netip.Prefix{} // of the zero Addr, which has no owner
	}
	return shard
}

// namePrefix begins the names of all objects of the ledger.
const namePrefix = "fairlead-ledger-"

// Name is the name of the object that has a page: fairlead-ledger-192.0.2.0-24. A colon is
// written as a hyphen, and an IPv6 address in full, since such a name begins and ends
// with a letter or a digit everywhere (RFC 1123).
func Name(shard netip.Prefix) string {
	return fmt.Sprintf("%s%s-%d", namePrefix, strings.ReplaceAll(shard.Addr().StringExpanded(), ":", "-"), shard.Bits())
}

// ParseName is Name the other way round. ok: it is the name of a page.
func ParseName(name string) (shard netip.Prefix, ok bool) {
	rest, ours := strings.CutPrefix(name, namePrefix)
	i := strings.LastIndexByte(rest, '-')
	if !ours || i < 0 {
		return netip.Prefix{}, false
	}
	a, err := netip.ParseAddr(strings.ReplaceAll(rest[:i], "-", ":"))
	if err != nil {
		return netip.Prefix{}, false
	}
	shard = Shard(a)
	return shard, name == Name(shard)
}

// key is an address as ConfigMaps have keys, which know no colon: 2001-db8--7.
func key(a netip.Addr) string { return strings.ReplaceAll(a.String(), ":", "-") }

// untilMark stands between the owner and the end of the rest.
const untilMark = " until "

// Encode writes a page as the data of a ConfigMap: "namespace/name" for an address that
// is held, "namespace/name until 2026-01-02T15:04:05Z" (RFC 3339) for one that rests.
// A nil page has none.
func (p *Page) Encode() map[string]string {
	if p == nil {
		return nil
	}
	data := make(map[string]string, len(p.entries))
	for a, e := range p.entries {
		text := e.Owner.String()
		if e.Rests() {
			text += untilMark + e.Until.UTC().Format(time.RFC3339)
		}
		data[key(a)] = text
	}
	return data
}

// Decode reads the data of the object that has the page of a shard. What cannot be read is
// left out, and named in faults.
func Decode(shard netip.Prefix, data map[string]string) (b Book, faults []string) {
	entries := make(map[netip.Addr]Entry, len(data))
	for _, name := range slices.Sorted(maps.Keys(data)) {
		a, err := netip.ParseAddr(strings.ReplaceAll(name, "-", ":"))
		switch {
		case err != nil, key(a) != name:
			faults = append(faults, fmt.Sprintf("the key %q is no address", name))
			continue
		case Shard(a) != shard:
			faults = append(faults, fmt.Sprintf("the address %s is not of %s", a, shard))
			continue
		}
		e, ok := parseEntry(data[name])
		if !ok {
			faults = append(faults, fmt.Sprintf("%q, of %s, is not namespace/name, nor with a time as in \"until 2026-01-02T15:04:05Z\"", data[name], name))
			continue
		}
		entries[a] = e
	}
	return Book{}.With(entries), faults
}

func parseEntry(text string) (e Entry, ok bool) {
	owner, until, rests := strings.Cut(text, untilMark)
	namespace, name, _ := strings.Cut(owner, "/")
	if namespace == "" || name == "" || strings.ContainsAny(namespace+name, "/ \t\n") {
		return Entry{}, false
	}
	e.Owner = view.Ref{Namespace: namespace, Name: name}
	if !rests {
		return e, true
	}
	end, err := time.Parse(time.RFC3339, until)
	e.Until = end.UTC()
	return e, err == nil && e.Rests() && e.Until.Nanosecond() == 0
}
