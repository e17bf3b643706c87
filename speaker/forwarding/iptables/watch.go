package iptables

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/forwarding/kernelwatch"
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

// tablesEvery is the time between two looks at the tables. While rules are gone nobody is
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
	for _, f := range b.families {
		if f.disturbed() {
			return true
		}
	}
	return false
}

// disturbed tells whether an Apply would find something to do.
func (f *family) disturbed() bool {
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
	if f.watch.look() != f.reading.epoch {
		return true
	}
	if time.Since(f.sets.looked) < kernelwatch.Interval {
		return false
	}
	f.sets.looked = time.Now()
	return f.sets.differ()
}

// lockIsFree tells whether nobody holds the lock of legacy iptables.
func lockIsFree() bool {
	lock, err := os.Open(lockFile())
	if err != nil {
		return true // whoever needs it will say why it cannot be had
	}
	defer func() { _ = lock.Close() }() // and with it the lock
	return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// reading bounds and directs the reading of the tables of a family.
type reading struct {
	epoch    int  // of the watch when the tables were last compared; unread: they must be
	repaired int  // epoch in which a glance saw damage that was repaired since; unread: none
	thorough bool // they were read rule by rule
	deep     bool // the next reading must be thorough
	unfit    bool // glances see damage where there is none: every reading must be
	alarmed  bool // a glance saw damage that nobody did

	kernelwatch.RateLimit // for reading and repairing
}

// unread is no epoch of a watch.
const unread = -1

func newReading() reading { return reading{repaired: unread, RateLimit: kernelwatch.NewRateLimit()} }

// again has the tables read once more after a repair, if others wrote nothing since the reading
// that it was for: what is amiss then, a glance does not see for what it is.
func (r *reading) again(now int) {
	if now == r.epoch && !r.thorough {
		r.repaired, r.epoch = now, unread
	}
}

// check looks whether the kernel still is as it was written. Differences are written
// by the next write.
func (f *family) check(ctx context.Context) error {
	if !f.loaded || !f.reading.Allowed() {
		return nil
	}
	began := time.Now()
	if now := f.watch.look(); now != f.reading.epoch {
		damage, err := f.compare(ctx)
		if err != nil {
			return err
		}
		f.judge(damage, now == f.reading.repaired)
		if len(damage) == 0 { // else the repair is counted along with it
			f.reading.Spend(time.Since(began))
		}
	}
	return f.sets.check()
}

// judge takes note of damage that others did, or that nobody did since it was repaired.
func (f *family) judge(damage []string, again bool) {
	r := &f.reading
	switch {
	case len(damage) == 0 && r.thorough && r.alarmed:
		r.unfit = true
	case len(damage) == 0 || r.thorough:
		r.alarmed = false
	case again:
		r.alarmed, r.deep = true, true
	}
	r.repaired = unread
	if len(damage) == 0 {
		return
	}
	f.damaged = true
	f.repairs += len(damage)
	f.sets.forget()
	f.log.Warn("Somebody changed rules of ours; writing them again",
		"changed", len(damage), "example", damage[:min(len(damage), 3)])
}

// compare asks the kernel for the chains of ours and returns those that are not
// as they were written.
func (f *family) compare(ctx context.Context) (damage []string, err error) {
	// First: what changes while the tables are read shows next time.
	epoch := f.watch.look()
	thorough := f.commands.variant == Legacy || f.reading.deep || f.reading.unfit
	for i, t := range f.tables() {
		var s saved
		if thorough {
			s, err = f.commands.saveTable(ctx, &f.runners[i], t.name, t.lines())
		} else {
			s, err = glance(f.family, t.name, t.jumps)
		}
		if err != nil {
			return nil, err
		}
		if t.anotherWrote(s) {
			f.log.Warn("Another speaker on this node wrote to our chains, or a program of ours that seemed to have failed; writing all of them again", "table", t.name)
			f.sets.doubt()
		}
		damage = append(damage, t.compare(s)...)
	}
	f.reading.epoch, f.reading.thorough, f.reading.deep = epoch, thorough, false
	return damage, nil
}
