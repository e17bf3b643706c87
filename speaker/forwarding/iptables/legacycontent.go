package iptables

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
)

// legacyContent is a digest of what a table of legacy iptables holds, everybody's rules and whatever they say,
// but not of how often they matched. It costs a copy of the table, without a process. The errors are the kernel's.
func legacyContent(family addr.Family, table string, seed maphash.Seed) (uint64, error) {
	counts, err := legacyInfo(family, table)
	if err != nil {
		return 0, err
	}
	// The kernel writes no byte that means nothing, and its memory goes back at once: it is twenty megabytes
	// with ten thousand Services.
	answer, err := unix.Mmap(-1, 0, entriesAt+int(counts.bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return 0, fmt.Errorf("find room for the %s table %s: %w", family, table, err)
	}
	defer func() { _ = unix.Munmap(answer) }()
	copy(answer[:sizeAt], table)
	binary.NativeEndian.PutUint32(answer[sizeAt:], counts.bytes)
	if err := askLegacy(family, optGetEntries, answer); err != nil {
		return 0, fmt.Errorf("read the %s table %s: %w", family, table, err)
	}
	return digestEntries(family, answer[entriesAt:], seed), nil
}

// struct ipt_get_entries of the kernel, which IPv6 shares: a name, a size and the entries.
const (
	sizeAt    = 32
	entriesAt = 40
)

// entryHead says where in struct ipt_entry and struct ip6t_entry of the kernel the offset of the next entry is,
// and behind it, and the counters, where matches begin.
type entryHead struct{ nextAt, size int }

var entryHeads = map[addr.Family]entryHead{addr.IPv4: {nextAt: 90, size: 112}, addr.IPv6: {nextAt: 142, size: 168}}

// digestEntries is a digest of entries without their counters, up to the first one that is not whole.
func digestEntries(family addr.Family, entries []byte, seed maphash.Seed) uint64 {
	head := entryHeads[family]
	var h maphash.Hash
	h.SetSeed(seed)
	for len(entries) >= head.size {
		next := int(binary.NativeEndian.Uint16(entries[head.nextAt:]))
		if next < head.size || next > len(entries) {
			break
		}
		_, _ = h.Write(entries[:head.nextAt+2]) // a hash never fails
		_, _ = h.Write(entries[head.size:next])
		entries = entries[next:]
	}
	return h.Sum64()
}
