package iptables

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
)

// lockFile is what all programs of legacy iptables lock while they work.
func lockFile() string {
	if path := os.Getenv("XTABLES_LOCKFILE"); path != "" { // they heed it too
		return path
	}
	return "/run/xtables.lock"
}

// Watch calls disturbed, until ctx ends, when it is time for an Apply: others wrote to
// the tables or sets, or what kept the last Apply from its work is over.
func (b *Backend) Watch(ctx context.Context, disturbed func()) {
	kernelwatch.Poll(ctx, tablesEvery, b.disturbed, disturbed)
}

// tablesEvery is the time between two looks at the tables. While rules are gone no Service is
// served, so it is short, and a look at all of them costs the kernel a request or four. The
// sets cost ten for each family.
const tablesEvery = 50 * time.Millisecond

// disturbed costs a few requests, however much is in the tables and sets.
func (b *Backend) disturbed() bool {
	if !b.mu.TryLock() {
		return false // an Apply is at work
	}
	defer b.mu.Unlock()
	if b.families == nil {
		for _, v := range []Variant{NFT, Legacy} {
			if _, err := exec.LookPath(commands{variant: v}.program("restore")); err == nil && b.failed {
				return true
			}
		}
		return false
	}
	now := sync.OnceValue(b.config.Generation.Epoch) // one request for both families
	for _, f := range b.families {
		if f.disturbed(now) {
			return true
		}
	}
	return false
}

// disturbed tells whether an Apply would find something to do; now returns the epoch of nf_tables.
func (f *family) disturbed(now func() kernelwatch.Epoch) bool {
	for i := range f.runners {
		if f.runners[i].ended() {
			return true
		}
	}
	switch {
	case errors.Is(f.failure, errLocked):
		return lockIsFree()
	case errors.Is(f.failure, exec.ErrNotFound):
		_, err := exec.LookPath(f.commands.program("restore"))
		return err == nil
	case !f.loaded || !f.sound || !f.reading.Allowed():
		return false
	}
	if f.due(f.watch.at(now)) || f.first.disturbed(now) || f.watch.altered() || f.sets.sweep() {
		return true
	}
	if time.Since(f.sets.looked) < kernelwatch.Interval {
		return false
	}
	f.sets.looked = time.Now()
	return f.sets.differ()
}

// lockIsFree tells whether the lock of legacy iptables is free.
func lockIsFree() bool {
	lock, err := os.Open(lockFile())
	if err != nil {
		return true // the program that needs it tells why it cannot be had
	}
	defer func() { _ = lock.Close() }() // and with it the lock
	return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// reading bounds and directs the reading of the tables of a family.
type reading struct {
	epoch int              // of the watch when the tables were last compared
	whole int              // the epoch when all of them were
	full  kernelwatch.Pace // of comparing all of them

	kernelwatch.RateLimit // for reading and repairing
}

func newReading() reading { return reading{RateLimit: kernelwatch.NewRateLimit()} }

const (
	// fullEvery is how often all is compared at the most: that others put as many rules in place of ours shows
	// in no count.
	fullEvery = time.Second / 2
	// fullShare is the share of the time, one part in so many, that it may take.
	fullShare = 50
)

// due tells whether others wrote since the tables were compared, now being the epoch, or it is time to compare all
// of them.
func (f *family) due(now int) bool {
	whole := now == f.reading.whole && f.watch.knows()
	return now != f.reading.epoch || !whole && f.reading.full.Due()
}

// check compares the kernel with what was written: at once what counts say was changed, and then all if others
// wrote. Differences are written by the next write.
func (f *family) check(ctx context.Context) error {
	if !f.loaded || !f.reading.Allowed() {
		return nil
	}
	began := time.Now()
	var damage []string
	if now := f.watch.look(); f.due(now) {
		var err error
		damage, err = f.compare(ctx, now == f.reading.epoch, false)
		if f.judge(damage); err != nil {
			return err
		}
	}
	err := f.sets.check()
	if len(damage) == 0 { // else the repair is counted along with it
		f.reading.Spend(time.Since(began))
	}
	return err
}

// judge takes note of damage that others did.
func (f *family) judge(damage []string) {
	if len(damage) == 0 {
		return
	}
	f.damaged = true
	f.repairs += len(damage)
	f.sets.forget()
	f.log.Warn("Others changed rules of ours; writing them again",
		"changed", len(damage), "example", damage[:min(len(damage), 3)])
}

// compare reads the tables, and all of them if full, and returns the chains and jumps of ours that are not as
// they were written, also beside the errors of the kernel or a program. What is read back was written a moment ago.
func (f *family) compare(ctx context.Context, full, readBack bool) (damage []string, err error) {
	began := time.Now()
	// First: what changes while the tables are read shows next time.
	epoch := f.watch.look()
	f.watch.begin()
	full = full || f.commands.variant == Legacy
	var tables [2]saved
	read := 0
	for i := range tables {
		if tables[i], err = f.read(ctx, i, full); err != nil {
			f.watch.compared = false
			break
		}
		read++
	}
	readBack = readBack && read == len(tables) && f.watch.steady(epoch)
	for i, t := range f.tables()[:read] {
		damage = append(damage, t.compare(tables[i], readBack)...)
		if t.another {
			f.log.Warn("Another speaker on this node wrote to our chains; writing them again", "table", t.name)
			f.sets.doubt()
		}
	}
	if err != nil {
		return damage, err
	}
	f.reading.epoch = epoch
	if full {
		f.reading.whole = epoch
		f.reading.full.Read(began, fullEvery, fullShare)
	}
	return damage, nil
}

// read reads one of the tables. It returns the errors of the kernel or a program.
func (f *family) read(ctx context.Context, i int, full bool) (saved, error) {
	switch t := f.tables()[i]; {
	case f.commands.variant == Legacy:
		return f.commands.saveTable(ctx, &f.runners[i], t.name, t.lines())
	case full:
		return t.fullCheck(&f.socket, f.family)
	default:
		return t.quickCheck(&f.socket, f.family)
	}
}
