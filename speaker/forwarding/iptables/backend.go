// Package iptables renders desired.Forwarding into iptables rules and ipsets and
// keeps the kernel so. README.md in this directory shows the packet path and the
// chains.
package iptables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
	"fairlead.dev/fairlead/speaker/outcome"
)

// Config is what a Backend needs. Only Log is required.
type Config struct {
	Log *slog.Logger
	// Generation is shared with all that writes to nf_tables in this process; nil: nothing else does.
	Generation *kernelwatch.Generation
	// Variant to use; Detect, the zero value, asks the host.
	Variant Variant
	// Patience is how much longer than its work should take a program is waited for,
	// before all else goes on without it. It is killed after twenty times that. 0: 10 s.
	Patience time.Duration
	// Portion is how many rules, about, are written at a time of a large Service; 0: what takes some tens of ms.
	Portion int
}

// These are Config.Portion. Legacy iptables reads and writes the whole table each time, and takes longer for many
// portions than for a large one.
const (
	defaultPortion = 2000
	legacyPortion  = 10_000
)

// Backend owns the chains and sets of this product in one network namespace.
type Backend struct {
	config   Config
	mu       sync.Mutex
	variant  Variant // Detect until it is known
	families []*family
	failed   bool // to find out the variant, when it was last needed
}

// New makes a backend, and finds out which iptables the host uses. Where that cannot
// be found out, each Apply tries again. It writes nothing.
func New(cfg Config) *Backend {
	if cfg.Patience == 0 {
		cfg.Patience = defaultPatience
	}
	if cfg.Generation == nil {
		cfg.Generation = new(kernelwatch.Generation)
	}
	b := &Backend{config: cfg}
	_ = b.prepare(context.Background()) // Apply tells
	return b
}

// prepare finds out what to work with, unless it is known.
func (b *Backend) prepare(ctx context.Context) error {
	if b.families != nil {
		return nil
	}
	if b.variant = b.config.Variant; b.variant == Detect {
		var err error
		if b.variant, err = detect(ctx, b.config.Patience); err != nil {
			return fmt.Errorf("find out which iptables this host uses: %w", err)
		}
	}
	for _, f := range addr.Families() {
		s := style{f, desired.MasqueradeMark, b.variant == Legacy}
		w := &watch{variant: b.variant, family: f, generation: b.config.Generation, seed: maphash.MakeSeed()}
		family := newFamily(s, commands{b.variant, f}, w, b.config.Log)
		if family.portions.Most = cmp.Or(b.config.Portion, defaultPortion); b.config.Portion == 0 && s.legacyLayout {
			family.portions.Most = legacyPortion
		}
		for i := range family.runners {
			family.runners[i].patience = b.config.Patience
		}
		b.families = append(b.families, family)
	}
	b.config.Log.Info("Forwarding by iptables", "variant", string(b.variant))
	return nil
}

// Apply brings the kernel to want and returns which ports are not in the kernel as
// wanted, or still are though they are not wanted. A port that the kernel refuses is missing, with a
// *outcome.RefusedError in the error; all others are in place. The next Apply tries
// again what failed. With an unchanged want it costs next to nothing, and repairs what
// others changed.
func (b *Backend) Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	missing := outcome.Missing{}
	err := b.prepare(ctx)
	if b.failed = err != nil; b.failed {
		for _, family := range addr.Families() {
			missing.Add(outcome.Attempt{Family: family, Want: want})
		}
		for _, family := range addr.Families() {
			if want.Has(family) {
				return missing, &outcome.FamilyError{Family: family, Err: err} // of the other the same
			}
		}
		return missing, err
	}
	var errs []error
	for _, f := range b.families {
		errs = append(errs, f.apply(ctx, want, missing))
	}
	return missing, errors.Join(errs...)
}

// Tally counts the rules of one family that were written, and the chains, jumps and
// sets of it that others were found to have changed.
func (b *Backend) Tally(family addr.Family) (rules, repairs int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.of(family)
	if f == nil || !f.loaded {
		return 0, 0
	}
	for _, t := range f.tables() {
		rules += t.rules + len(t.jumps)
	}
	return rules, f.repairs + f.sets.repairs()
}

// of is what there is of a family, nil until it is known what to work with.
func (b *Backend) of(family addr.Family) *family {
	if b.families == nil {
		return nil
	}
	return b.families[slices.Index(addr.Families(), family)]
}

// AffinityOverflows counts the endpoints of one family whose list of clients was full when it was
// last looked at: each further client has another one forgotten.
func (b *Backend) AffinityOverflows(family addr.Family) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.of(family); f != nil {
		return f.sets.full
	}
	return 0
}

// Tool names the variant of iptables that is used: iptables-nft or iptables-legacy; ""
// while that is not known.
func (b *Backend) Tool() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.families == nil {
		return ""
	}
	return "iptables-" + string(b.variant)
}

// Cleanup removes what Remove does, and returns its errors. A later Apply begins anew.
func (b *Backend) Cleanup(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.families = nil
	return Remove(ctx)
}

// Remove removes all chains, rules and sets of ours from this network namespace, of both
// variants, and nothing else. The errors are those of the tools and of the kernel, joined.
func Remove(ctx context.Context) error {
	return errors.Join(nftable.Remove(firstTable), removeRules(ctx, NFT), removeRules(ctx, Legacy), destroySets())
}

// RemoveOther removes our chains and rules from the tables of the variant that is not used, where an earlier
// process may have used it, or others have restored what they saved. The errors are those of the tools and of the kernel, joined.
func (b *Backend) RemoveOther(ctx context.Context) error {
	switch b.Tool() {
	case "iptables-" + string(NFT):
		return removeRules(ctx, Legacy)
	case "iptables-" + string(Legacy):
		return removeRules(ctx, NFT)
	}
	return nil
}

// removeRules removes all chains and rules of ours of one variant.
func removeRules(ctx context.Context, variant Variant) error {
	var errs []error
	for _, family := range addr.Families() {
		c := commands{variant, family}
		if _, err := exec.LookPath(c.program("restore")); err != nil || variant == Legacy && !legacyInUse(family) {
			continue
		}
		errs = append(errs, c.cleanup(ctx))
	}
	return errors.Join(errs...)
}

// cleanup removes what is ours from both tables. It returns the errors of a program, or of the kernel, and
// waits longer for a lock than Apply: it is not called again.
func (c commands) cleanup(ctx context.Context) error {
	if c.variant == NFT {
		return cleanupNFT(c.family)
	}
	r := runner{patience: defaultPatience}
	for _, name := range []string{"nat", "filter"} {
		s, err := c.saveTable(ctx, &r, name, 60*pace)
		if err != nil {
			return err
		}
		t := newTable(name, nil) // in which nothing is wanted
		t.compare(s, false)
		if t.asWanted() {
			continue
		}
		script := t.script()
		err = c.restore(ctx, &r, script)
		for attempts := 10; errors.Is(err, errLocked) && attempts > 0; attempts-- {
			err = c.restore(ctx, &r, script)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
