// Package nftables renders desired.Forwarding into elements of nf_tables maps, which
// a fixed set of rules looks up, and keeps the kernel so. README.md in this directory
// shows the packet path and the maps.
package nftables

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
	"fairlead.dev/fairlead/speaker/outcome"
)

// Config is what a Backend needs.
type Config struct {
	Log *slog.Logger
	// Generation is shared with all that writes to nf_tables in this process; nil: nothing else does.
	Generation *kernelwatch.Generation
	// Portion is how many rows, about, are written at a time of a large Service; 0: what takes some tens of ms.
	Portion int
}

// defaultPortion is Config.Portion.
const defaultPortion = 2000

// Backend owns the tables of this product in one network namespace.
type Backend struct {
	mu       sync.Mutex
	link     *link
	families []*family
	reset    func() []*family
}

// New makes a backend. It writes nothing. What the kernel lacks the first Apply tells.
func New(cfg Config) *Backend {
	k := newLink(cfg.Generation)
	layouts := map[addr.Family]*layout{}
	for _, f := range addr.Families() {
		layouts[f] = newLayout(f)
	}
	k.persistence(layouts[addr.IPv4])
	b := &Backend{link: k}
	b.reset = func() []*family {
		var families []*family
		for _, f := range addr.Families() {
			family := newFamily(layouts[f], k, cfg.Log)
			family.portions.Most = cmp.Or(cfg.Portion, defaultPortion)
			families = append(families, family)
		}
		return families
	}
	b.families = b.reset()
	cfg.Log.Info("Forwarding by nftables")
	return b
}

// Apply brings the kernel to want and returns which ports are not in the kernel as
// wanted, or still are though they are not wanted. A port that the kernel refuses is missing, with a
// *outcome.RefusedError in the error; all others are in place. The next Apply tries
// again what failed. With an unchanged want it costs next to nothing, and repairs what
// others changed.
func (b *Backend) Apply(_ context.Context, want desired.Forwarding) (outcome.Missing, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	missing := outcome.Missing{}
	var errs []error
	for _, f := range b.families {
		errs = append(errs, f.apply(want, missing))
	}
	return missing, errors.Join(errs...)
}

// Watch calls disturbed, until ctx ends, when it is time for an Apply since others wrote.
// Meanwhile our tables are this process's alone, where the kernel can do that: then others
// cannot write to them.
func (b *Backend) Watch(ctx context.Context, disturbed func()) {
	b.keep(true)
	defer b.keep(false)
	kernelwatch.Poll(ctx, kernelwatch.Interval, b.disturbed, disturbed)
}

func (b *Backend) disturbed() bool {
	if !b.mu.TryLock() {
		return false // an Apply is at work
	}
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.families, func(f *family) bool {
		return f.disturbed() || f.loaded && !f.asked && f.link.keeping && f.link.persists
	})
}

// Tally counts the elements of our maps and sets in one family, and how many chains,
// maps and sets were found changed by others.
func (b *Backend) Tally(of addr.Family) (elements, repairs int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.family(of)
	return f.size, f.repairs
}

func (b *Backend) family(of addr.Family) *family {
	return b.families[slices.Index(addr.Families(), of)]
}

// AffinityOverflows is 1 if the map of the clients of one family had no room for some that came in the
// minute before the last look, else 0.
func (b *Backend) AffinityOverflows(of addr.Family) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.family(of).affinityOverflow.full {
		return 1
	}
	return 0
}

// Tool is nftables: the kernel itself is told.
func (b *Backend) Tool() string { return "nftables" }

// Cleanup removes our tables and nothing else. A later Apply begins anew. The errors are the kernel's.
func (b *Backend) Cleanup(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.families = b.reset()
	b.link.Close() // lest it owns what is to go
	return Remove(ctx)
}

// Remove removes our tables from this network namespace, and nothing else. It asks
// less of the kernel than a Backend does. The errors are the kernel's.
func Remove(context.Context) error { return nftable.Remove(tableName) }
