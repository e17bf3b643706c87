package nftables

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
	"fairlead.dev/fairlead/speaker/outcome"
)

// family is one address family: what its table is to hold, and what is known of the
// kernel's.
type family struct {
	*model
	link *link
	log  *slog.Logger

	refused  outcome.Refusals
	portions outcome.Portions
	// revision of the wanted ports that all are in the kernel, but for what is put off; 0: not all are.
	revision uint64

	loaded  bool // what an earlier process left is known
	begun   bool // all that was wanted was in place once
	asked   bool // for the table to be this process's alone
	sealed  bool // it was as it is known to be when it was
	damaged bool // others took elements or rules of ours away that are not back yet
	// found is what the kernel has where it is not what the model says.
	found            *dump
	size             int // elements in the kernel
	repairs          int
	epoch            kernelwatch.Epoch // when the table was last compared
	reading          kernelwatch.RateLimit
	probed           time.Time // when the kernel was last asked what it lacks
	lacks            error     // and what that is
	affinityOverflow affinityOverflow
}

func newFamily(l *layout, k *link, log *slog.Logger) *family {
	return &family{
		model: newModel(l), link: k, reading: kernelwatch.NewRateLimit(),
		log: log.With("family", l.Family.String()),
	}
}

// apply brings the kernel to what is wanted of this family and adds to missing the
// ports that are not in it as wanted, or are though they are not.
func (f *family) apply(want desired.Forwarding, missing outcome.Missing) error {
	changes := f.portions.Changes(want, f.ports, f.revision, desired.OfFamily(f.Family))
	err := f.bring(want, changes)
	f.begun = f.begun || err == nil
	if !f.begun && !want.Has(f.Family) {
		f.log.Debug("This host cannot forward this family, and nothing wants it to", "error", err)
		return nil
	}
	f.revision = 0
	if err == nil {
		f.revision = want.Revision
	}
	if len(changes) == 0 && f.loaded { // what is new is not kept waiting
		f.affinityOverflow.look(f.model)
	}
	missing.Add(outcome.Attempt{
		Family: f.Family, Want: want, Changes: changes, Later: f.portions.Later(), Held: f.ports, Known: f.loaded && !f.damaged, Sound: true,
	})
	if err != nil {
		err = &outcome.FamilyError{Family: f.Family, Settled: f.loaded && !f.damaged && f.found == nil && f.nodeSets.equal(f.nodeSetsOf(want)), Err: err}
	}
	return errors.Join(err, f.portions.Err())
}

// bring checks that the kernel is as it was left, and makes the changes.
func (f *family) bring(want desired.Forwarding, changes []desired.Change) error {
	f.portions.All()
	if err := f.check(); err != nil {
		return errors.Join(err, f.explain())
	}
	changes, again, told := f.refused.Part(changes, time.Now())
	if f.found == nil { // else the whole is compared, which may be what an earlier process left of all Services
		changes = f.portions.Next(changes)
	}
	to := f.nodeSetsOf(want)
	err := f.place(to, changes)
	if len(again) > 0 && f.loaded { // apart, so that they hold nothing up
		err = errors.Join(err, f.place(to, again))
	}
	if err == nil {
		f.ids.recall = recall{}
		f.hold()
	}
	for _, c := range slices.Concat(changes, again) {
		if _, has := f.assignments[c.Key]; !has {
			f.ids.release(c.Key)
		}
	}
	return errors.Join(err, told)
}

// place writes changes to the kernel. If it refuses them, halves are tried, so that
// those remain out that it refuses alone.
func (f *family) place(to nodeSets, changes []desired.Change) error {
	steps, refusals := f.steps(changes)
	err := f.try(to, steps, true)
	if err == nil || !f.loaded {
		return errors.Join(err, refusals)
	}
	if f.try(to, nil, false) != nil || f.link.probe(f.layout) != nil {
		return errors.Join(err, f.explain(), refusals) // no change at all would succeed now: none is to blame
	}
	err = f.isolate(to, steps, err)
	// What is not wanted any more was left alone so far: halves are no whole.
	return errors.Join(err, f.try(to, nil, true), refusals)
}

// steps prepares changes, but for those that no kernel could make.
func (f *family) steps(changes []desired.Change) ([]step, error) {
	var steps []step
	var errs []error
	for _, c := range changes {
		s, err := f.step(c)
		if err != nil {
			errs = append(errs, f.refuse(s, err))
			continue
		}
		steps = append(steps, s)
	}
	return steps, errors.Join(errs...)
}

func (f *family) refuse(s step, err error) error {
	if s.to != nil {
		return f.refused.Add(s.key, s.to.port, err)
	}
	return &outcome.RefusedError{Key: s.key, Err: err}
}

// isolate takes those steps that the kernel takes, and returns what it refuses. It
// refused all of them together for a reason.
func (f *family) isolate(to nodeSets, steps []step, reason error) error {
	switch len(steps) {
	case 0:
		return nil
	case 1:
		return f.refuse(steps[0], reason)
	}
	var errs []error
	half := len(steps) / 2
	for _, some := range [][]step{steps[:half], steps[half:]} {
		some = slices.DeleteFunc(slices.Clone(some), func(s step) bool {
			if s.to == nil {
				return false
			}
			alike := f.refused.Like(s.key, &s.to.port, reason)
			errs = append(errs, alike)
			return alike != nil
		})
		if err := f.try(to, some, false); err != nil && f.loaded {
			errs = append(errs, f.isolate(to, some, err))
		}
	}
	return errors.Join(errs...)
}

// try takes steps, all or none of them.
func (f *family) try(to nodeSets, steps []step, removals bool) error {
	var d delta
	if f.found == nil { // else the whole is compared
		d = make(delta, sizeOf(steps))
	}
	from := f.move(to, d)
	for _, s := range steps {
		f.take(s, d)
	}
	err := f.write(d, removals)
	if err != nil {
		for _, s := range slices.Backward(steps) {
			f.take(s.reverse(), nil)
		}
		f.move(from, nil)
	}
	return err
}

// write makes the delta true, and all else that the kernel is known to have otherwise.
// Without removals it leaves there what is not wanted.
func (f *family) write(d delta, removals bool) error {
	rebuild := false
	if f.found != nil {
		if rebuild = f.broken(); rebuild {
			f.found.elements, f.size = nil, 0
		}
		d = f.differences(f.found)
	}
	d.prune(removals)
	if len(d) > 0 {
		if err := f.commit(d, rebuild); err != nil {
			return errors.Join(err, f.aftermath())
		}
		f.size += d.growth()
	}
	f.damaged = false
	switch {
	case f.found == nil:
	case removals || rebuild:
		f.found = nil
	default:
		for i, c := range d {
			f.found.elements.found(element{i, c.is})
		}
	}
	return nil
}

// commit sends a delta, of a table that is to be made anew or of the one that is there.
func (f *family) commit(d delta, anew bool) error {
	if !anew {
		return f.link.Commit(func(b *batch) { f.change(b, d, f.rules) })
	}
	return f.link.replace(f.layout, func(b *batch) {
		f.addSets(b)
		b.Chains(&f.Table, f.static())
		f.change(b, d, f.rules)
	})
}

// differences are what all that is wanted changes about what was found.
func (f *family) differences(found *dump) delta {
	const perPort = 12 // elements, as a guess
	d := make(delta, max(len(found.elements), perPort*len(f.ports)))
	maps.Copy(d, found.elements)
	f.fill(d)
	return d
}

// broken tells whether chains are not as they must be. Then nothing of the table can
// stay: it may be of another layout. Nor can it where it cannot be owned, and one could be
// that we make.
func (f *family) broken() bool {
	if f.found.fleeting && f.link.persists {
		return true
	}
	for _, c := range f.static() {
		if e := f.element(c); f.found.elements[e.item].was != e.value {
			return true
		}
	}
	for _, e := range f.nodeSets[guardAt] {
		if found := f.found.elements[e.item]; found.had && found.was != e.value {
			return true
		}
	}
	for _, u := range f.chains {
		if found := f.found.elements[u.chain.item]; found.had && found.was != u.chain.value {
			return true
		}
	}
	return false
}

// rules is a chain that is not always there.
func (f *family) rules(name string) (chain, bool) {
	if name == guarding {
		return f.guard(), true
	}
	if u, ok := f.chains[name]; ok {
		return u.rules, true
	}
	return chain{}, false
}

// aftermath finds out what a transaction left that seems to have failed. If its
// receipt alone was lost, it did not fail.
func (f *family) aftermath() error {
	if !f.link.Generation.Changed(f.epoch) {
		return nil
	}
	f.loaded = false
	return f.load()
}

func (f *family) load() error {
	sealed := f.link.holds(f.layout)
	var found *dump
	epoch, err := f.link.Generation.Read(func() (err error) {
		found, err = f.read()
		return err
	})
	if err != nil {
		return err
	}
	f.epoch, f.found, f.loaded, f.sealed = epoch, found, true, sealed
	f.size = -found.elements.growth() // as if all were taken out
	return nil
}

// check looks whether the kernel still is as it was left. Differences are written by
// the next write.
func (f *family) check() error {
	if !f.loaded {
		err := f.load()
		if err == nil && len(f.ports) == 0 {
			f.ids.remember(f.found.recall())
		}
		return err
	}
	if !f.disturbed() {
		return nil
	}
	began := time.Now()
	err := f.load()
	f.reading.Spend(time.Since(began))
	if nfnetlink.Again(err) {
		return nil // they write just now; the next look will tell
	}
	if err != nil {
		return err
	}
	lost := f.differences(f.found)
	if lost.prune(true); len(lost) == 0 {
		if !f.found.fleeting || !f.link.persists {
			f.found = nil
		}
		return nil
	}
	f.damaged = true
	f.repairs += lost.places()
	f.log.Warn("Another program changed what is ours; writing it again", "items", len(lost))
	return nil
}

// disturbed tells whether others wrote, and there is time to see what.
func (f *family) disturbed() bool {
	return f.loaded && f.reading.Allowed() && f.link.Generation.Changed(f.epoch) && !f.untouched()
}
