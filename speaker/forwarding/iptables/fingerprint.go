package iptables

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
)

// fingerprint is a cheap digest of what the kernel holds with legacy iptables, of everybody's rules:
// one that differs tells that others wrote. Others may put as much in place of ours, see watch.altered.
type fingerprint [2]legacyCounts // of nat and filter

type legacyCounts struct{ entries, bytes uint32 }

// legacyTables are those that a fingerprint is of.
var legacyTables = [2]string{"nat", "filter"}

// follows tells whether nothing but one transaction of ours, on the i-th table, lies between two
// fingerprints; it made the table longer by this many entries.
func (f fingerprint) follows(before fingerprint, i, longer int) bool {
	other := 1 - i
	return f[other] == before[other] && int64(f[i].entries) == int64(before[i].entries)+int64(longer)
}

// watch notices that other programs wrote.
type watch struct {
	variant Variant
	family  addr.Family
	// generation counts for nf_tables. All that writes to it in this process shares one, both families too.
	generation *kernelwatch.Generation
	seen       fingerprint // with legacy iptables
	epoch      int         // goes up when others may have written

	compared bool         // the tables, since our last write
	contents [2]uint64    // digests of nat and filter, with legacy iptables, since then; 0: none
	seed     maphash.Seed // of them
	next     int          // the table to be looked at next
	pace     kernelwatch.Pace
}

// read asks the kernel, without a process.
func (w *watch) read() (fingerprint, error) {
	var f fingerprint
	var err error
	for i, table := range legacyTables {
		if f[i], err = legacyInfo(w.family, table); err != nil {
			return f, err
		}
	}
	return f, nil
}

// look returns the epoch: tables that were read in the same one are as they
// were, but for our own writes.
func (w *watch) look() int { return w.at(w.generation.Epoch) }

// at is look where now returns the epoch of nf_tables.
func (w *watch) at(now func() kernelwatch.Epoch) int {
	if w.variant == NFT {
		return int(now())
	}
	if now, err := w.read(); err != nil || now != w.seen {
		w.seen = now
		w.epoch++
	}
	return w.epoch
}

// wrote takes note of one transaction of ours on the i-th table of legacy iptables.
func (w *watch) wrote(i, longer int) {
	now, err := w.read()
	if err != nil || !now.follows(w.seen, i, longer) {
		w.epoch++
	}
	w.seen, w.compared, w.contents[i] = now, false, 0
}

// knows tells whether all that others put in place of as many rules of ours will be noticed. With legacy iptables that
// takes a comparison after each write of ours: others may have written right before or after it.
func (w *watch) knows() bool { return w.variant == NFT || w.compared }

// begin notes what legacy tables hold that are about to be compared. What others write meanwhile shows later.
func (w *watch) begin() {
	if w.variant != Legacy {
		return
	}
	w.compared = true
	for i, table := range legacyTables {
		var err error
		w.contents[i], err = legacyContent(w.family, table, w.seed)
		w.compared = w.compared && err == nil
	}
}

// steady reports whether legacy tables hold what they held when begin was called, in this epoch.
func (w *watch) steady(epoch int) bool {
	for i, table := range legacyTables {
		if now, err := legacyContent(w.family, table, w.seed); err != nil || now != w.contents[i] {
			return false
		}
	}
	return w.look() == epoch
}

const (
	// contentEvery is how often one of the legacy tables of a family is read for its content at the most.
	contentEvery = 500 * time.Millisecond
	// atRest is the share of the time, one part in so many, that is spent on reading where the kernel does
	// not tell that others wrote.
	atRest = 100
)

// altered begins an epoch, and reports it, if a table of legacy iptables holds something else than when it was
// compared, or first read after a write of ours. It reads one table at a time.
func (w *watch) altered() bool {
	if w.variant != Legacy || !w.pace.Due() {
		return false
	}
	began, i := time.Now(), w.next
	w.next = 1 - i
	now, err := legacyContent(w.family, legacyTables[i], w.seed)
	w.pace.Read(began, contentEvery, atRest)
	before := w.contents[i]
	if err == nil { // else others write just now
		w.contents[i] = now
	}
	if err != nil || before == 0 || now == before {
		return false
	}
	w.epoch++
	w.compared = false
	return true
}

// getInfo is struct ipt_getinfo of the kernel, which IPv6 shares.
type getInfo struct {
	name       [32]byte
	validHooks uint32
	hookEntry  [5]uint32
	underflow  [5]uint32
	numEntries uint32
	size       uint32
}

func legacyInfo(family addr.Family, table string) (legacyCounts, error) {
	var info getInfo
	copy(info.name[:], table)
	if err := askLegacy(family, optGetInfo, unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info))); err != nil {
		return legacyCounts{}, fmt.Errorf("ask for the size of the %s table %s: %w", family, table, err)
	}
	return legacyCounts{info.numEntries, info.size}, nil
}

const (
	optGetInfo    = 64 // IPT_SO_GET_INFO and IP6T_SO_GET_INFO
	optGetEntries = 65 // IPT_SO_GET_ENTRIES and IP6T_SO_GET_ENTRIES
)

// askLegacy puts a question to the kernel's legacy iptables, which is what is in about, and has it answered there.
func askLegacy(family addr.Family, option uintptr, about []byte) error {
	domain, level := unix.AF_INET, unix.IPPROTO_IP
	if family == addr.IPv6 {
		domain, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	size := uint32(len(about))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), option,
		uintptr(unsafe.Pointer(&about[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

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
