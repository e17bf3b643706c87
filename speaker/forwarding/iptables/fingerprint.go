package iptables

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
)

// fingerprint is a cheap digest of what the kernel holds with legacy iptables, of everybody's rules:
// while it stays the same, ours are as they were.
type fingerprint [2]legacyCounts // of nat and filter

type legacyCounts struct{ entries, bytes uint32 }

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
}

// read asks the kernel, without a process.
func (w *watch) read() (fingerprint, error) {
	var f fingerprint
	var err error
	for i, table := range []string{"nat", "filter"} {
		if f[i], err = legacyInfo(w.family, table); err != nil {
			return f, err
		}
	}
	return f, nil
}

// look returns the epoch: tables that were read in the same one are as they
// were, but for our own writes.
func (w *watch) look() int {
	if w.variant == NFT {
		epoch, _ := w.generation.Read(func() error { return nil }) // the tables are read next
		return int(epoch)
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
	w.seen = now
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

const optGetInfo = 64 // IPT_SO_GET_INFO and IP6T_SO_GET_INFO

func legacyInfo(family addr.Family, table string) (legacyCounts, error) {
	domain, level := unix.AF_INET, unix.IPPROTO_IP
	if family == addr.IPv6 {
		domain, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return legacyCounts{}, fmt.Errorf("open a raw %s socket: %w", family, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var info getInfo
	copy(info.name[:], table)
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), optGetInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return legacyCounts{}, fmt.Errorf("ask for the size of the %s table %s: %w", family, table, errno)
	}
	return legacyCounts{info.numEntries, info.size}, nil
}
