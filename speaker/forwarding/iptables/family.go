package iptables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
	"fairlead.dev/fairlead/speaker/outcome"
)

// family is one address family: its rules, its sets, and what the kernel has of them.
type family struct {
	style
	commands commands
	log      *slog.Logger

	nat, filter ruleset
	first       first
	runners     [2]runner // of the programs that work on nat and on filter
	socket      nfnetlink.Conn
	sets        *sets
	around      *surroundings // that the base was rendered for

	ports    map[desired.PortKey]desired.Port // as rendered into the tables
	refused  outcome.Refusals
	portions outcome.Portions
	// revision of the wanted ports that all are in the kernel, but for what is put off; 0: not all are.
	revision uint64

	loaded  bool // what an earlier process left is known
	sound   bool // the last write succeeded
	begun   bool // a write succeeded once
	failure error
	repairs int  // of chains and jumps that others changed
	damaged bool // others took rules of ours away that are not back yet
	watch   *watch
	reading reading
	tried   time.Time // the last attempt, if no port wants this family
	asked   time.Time // when the kernel was last asked what it lacks
	lacks   error     // and what that is
}

func newFamily(s style, c commands, w *watch, log *slog.Logger) *family {
	log = log.With("family", s.family.String())
	f := &family{
		style: s, commands: c, watch: w, log: log,
		nat:     newRuleset(s, "nat", natJumps()),
		filter:  newRuleset(s, "filter", filterJumps()),
		sets:    newSets(s, log),
		ports:   map[desired.PortKey]desired.Port{},
		reading: newReading(),
	}
	f.base(desired.Forwarding{})
	return f
}

// apply brings the kernel to what is wanted of this family and adds to missing the
// ports that are not in it as wanted, or are though they are not.
func (f *family) apply(ctx context.Context, want desired.Forwarding, missing outcome.Missing) error {
	wanted := f.begun || want.Has(f.family)
	if !wanted && time.Since(f.tried) < unwantedPause {
		return nil
	}
	f.tried = time.Now()
	f.base(want)
	f.sets.fixed[ofPods].exactly(netElements(want.Pods, f.family))
	f.sets.fixed[ofRanges].exactly(netElements(want.ServiceRanges, f.family))
	f.sets.fixed[ofRefused].exactly(netElements(want.Refused, f.family))
	f.sets.fixed[ofHealthPorts].exactly(portElements(want.HealthPorts))
	changes := f.portions.Changes(want, f.ports, f.revision, desired.OfFamily(f.family))
	err := f.bring(ctx, changes)
	if !wanted && !f.begun {
		f.log.Debug("This host cannot forward this family, and nobody wants it to", "error", err)
		return nil
	}
	f.failure, f.revision = err, 0
	if err == nil {
		f.revision = want.Revision
	}
	if len(changes) == 0 { // what is new is not kept waiting
		f.sets.count()
	}
	missing.Add(outcome.Attempt{
		Family: f.family, Want: want, Changes: changes, Later: f.portions.Later(), Held: f.ports, Known: f.loaded && !f.damaged, Sound: f.sound,
	})
	if err != nil {
		err = &outcome.FamilyError{Family: f.family, Settled: f.loaded && f.sound && f.sets.settled(), Err: err}
	}
	return errors.Join(err, f.portions.Err())
}

// unwantedPause is how often a family is tried that no port wants and that fails.
const unwantedPause = time.Minute

// bring checks that the kernel is as it was left, makes the changes, and only
// then takes away what is not used any more. It returns a *outcome.RefusedError for each port that the
// kernel refuses, and what fails for all.
func (f *family) bring(ctx context.Context, changes []desired.Change) error {
	began := time.Now()
	f.resume()
	unread := f.check(ctx)
	f.comeFirst()
	repairs := f.damaged
	changes, again, told := f.refused.Part(changes, time.Now())
	f.portions.All()
	if f.begun { // else the kernel may have what an earlier process left of all Services
		changes = f.portions.Next(changes)
	}
	err := f.place(ctx, changes)
	if len(again) > 0 && f.sound { // apart, so that they do not hold up others
		err = errors.Join(err, f.place(ctx, again))
	}
	err = errors.Join(unread, f.sets.failure, f.first.failure, err, told)
	if f.sound {
		err = errors.Join(err, f.sets.trim())
	}
	if repairs {
		f.reading.Healed(time.Since(began))
	}
	return err
}

// resume takes note of programs that have ended since they were given up: what they
// did must be read.
func (f *family) resume() {
	for i, t := range f.tables() {
		if f.runners[i].over() {
			t.forget()
			f.loaded = false
		}
	}
}

// base renders the chains that are there whatever Services exist.
func (f *family) base(want desired.Forwarding) {
	f.surround(surroundingsOf(f.family, want))
}

// surround renders them for other surroundings, or when endpoints are where datagrams were refused so far.
func (f *family) surround(around surroundings) {
	around.discard = discard
	for f.sets.serves(netip.AddrPortFrom(around.own, around.discard), view.UDP) {
		around.discard++
	}
	if f.around != nil && f.around.equal(around) {
		return
	}
	f.around = &around
	for name, rules := range f.natBase(around) {
		f.nat.table.set(name, rules)
	}
	for name, rules := range f.filterBase(around) {
		f.filter.table.set(name, rules)
	}
}

// place writes changes to the kernel. If it refuses them, halves are tried, so
// that those remain out that it refuses alone.
func (f *family) place(ctx context.Context, changes []desired.Change) error {
	f.stage(changes)
	err := f.write(ctx)
	if err == nil {
		return nil
	}
	for i := range changes {
		changes[i].From, changes[i].To = changes[i].To, changes[i].From
	}
	f.stage(changes)
	for i := range changes {
		changes[i].From, changes[i].To = changes[i].To, changes[i].From
	}
	if !refused(err) {
		return err
	}
	if len(changes) == 0 || f.write(ctx) != nil || f.probe(ctx) != nil {
		// No change at all would succeed now: none is to blame.
		return errors.Join(err, f.explain(ctx))
	}
	if len(changes) == 1 {
		if port := changes[0].To; port != nil {
			return f.refused.Add(changes[0].Key, *port, err)
		}
		return &outcome.RefusedError{Key: changes[0].Key, Err: err}
	}
	half := len(changes) / 2
	errs := []error{f.place(ctx, changes[:half])}
	rest := slices.DeleteFunc(slices.Clone(changes[half:]), func(c desired.Change) bool {
		alike := f.refused.Like(c.Key, c.To, err)
		errs = append(errs, alike)
		return alike != nil
	})
	if len(rest) > 0 {
		errs = append(errs, f.place(ctx, rest))
	}
	return errors.Join(errs...)
}

// stage renders changes into the tables and sets, but not into the kernel. What a port
// had follows from the port, and is rendered again rather than kept for all of them.
func (f *family) stage(changes []desired.Change) {
	for _, c := range changes {
		var from, to rendering
		before, had := f.ports[c.Key]
		if had {
			from = f.render(c.Key, before)
		}
		if c.To == nil {
			delete(f.ports, c.Key)
		} else {
			to = f.render(c.Key, *c.To)
			f.ports[c.Key] = *c.To
		}
		f.nat.replace(c.Key, from.nat, to.nat)
		f.filter.replace(c.Key, from.filter, to.filter)
		f.sets.use(elements(c.Key, f.ports[c.Key]), to.clients, +1)
		f.sets.use(elements(c.Key, before), from.clients, -1)
	}
	f.nat.publish()
	f.filter.publish()
	f.surround(*f.around)
}

// write brings tables and sets into the kernel; what is to leave the sets stays for
// now. A set that fails does not keep the rules out.
func (f *family) write(ctx context.Context) error {
	f.sound = false
	f.sets.fill()
	if !f.loaded {
		if _, err := f.compare(ctx, true, false); err != nil {
			return err
		}
		f.loaded = true
	}
	epoch := f.watch.epoch
	err := f.writeTables(ctx)
	if refused(err) && f.watch.look() != f.reading.whole { // perhaps for what others wrote, and no count shows
		if _, unread := f.compare(ctx, true, false); unread == nil {
			err = f.writeAgain(ctx)
		}
	}
	if err == nil && f.commands.variant == Legacy && (f.nat.table.again || f.filter.table.again) {
		err = f.readBack(ctx, epoch)
	}
	if err != nil {
		return err
	}
	f.begun, f.sound, f.damaged = true, true, false
	f.writeFirst()
	return nil
}

// writeAgain is write once more, of what others have changed meanwhile.
func (f *family) writeAgain(ctx context.Context) error {
	f.sets.fill()
	return f.writeTables(ctx)
}

// readBack finds out how iptables-legacy-save prints what was written a moment ago, unless others have written since an epoch.
// What they changed is written again at once: as they are known now, their changes begin no other epoch. It returns the
// errors of the kernel or a program.
func (f *family) readBack(ctx context.Context, epoch int) error {
	damage, err := f.compare(ctx, true, f.watch.look() == epoch)
	if f.judge(damage); err != nil || len(damage) == 0 {
		return err
	}
	return f.writeAgain(ctx)
}

func (f *family) writeTables(ctx context.Context) error {
	if f.commands.variant == NFT {
		return f.writeNFT()
	}
	var errs []error
	for i := range f.tables() {
		err := f.writeLegacy(ctx, i)
		errs = append(errs, err)
		if errors.Is(err, errLocked) || errors.Is(err, exec.ErrNotFound) {
			break // the other table would fare no better
		}
	}
	return errors.Join(errs...)
}

func (f *family) writeLegacy(ctx context.Context, i int) error {
	t := f.tables()[i]
	if t.asWanted() {
		t.written()
		return nil
	}
	if err := f.commands.restore(ctx, &f.runners[i], t.script()); err != nil {
		f.sets.forget() // the reason may be that one is gone
		return fmt.Errorf("table %s: %w", t.name, err)
	}
	f.watch.wrote(i, t.written())
	return nil
}

func (f *family) tables() []*table { return []*table{f.nat.table, f.filter.table} }

// probe tells whether the kernel takes anything.
func (f *family) probe(ctx context.Context) error {
	for i := range f.tables() {
		if err := f.try(ctx, i, "-j RETURN"); err != nil {
			return err
		}
	}
	return nil
}
