package nftables

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/speaker/outcome"
)

// probeTable is never there: the transaction that makes it deletes it.
const probeTable = tableName + "-probe"

// specimens are chains that have every kind of rule.
func (l *layout) specimens() []chain {
	several, sticky := group{size: 2}, group{size: 2, local: true, seconds: 1}
	all := l.static()
	for _, c := range slices.Concat(
		l.chains(class{entry: outside, main: several, others: sticky, guarded: true}, byAddress),
		l.chains(class{entry: internal, main: sticky}, byNodePort)) {
		if !slices.ContainsFunc(all, func(has chain) bool { return has.Name == c.Name }) {
			all = append(all, c)
		}
	}
	return all
}

// probe finds out whether the kernel has all that these chains need, and if not, what
// it lacks.
func probe(k *link, l *layout, chains []chain) error {
	l = l.as(probeTable)
	// try has the kernel check chains and keep none of them.
	try := func(chains []chain) error {
		return k.Commit(func(b *batch) {
			b.Conn.AddTable(l.NFT)
			l.addSets(b)
			b.Chains(&l.Table, chains)
			b.Conn.DelTable(l.NFT)
		})
	}
	err := try(chains)
	if err == nil {
		return nil
	}
	bare := slices.Clone(chains)
	for i := range bare {
		bare[i].Rules = nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("nf_tables of %s: %w: the process needs the capability NET_ADMIN", l.Family, err)
	}
	if err := try(bare); err != nil {
		return fmt.Errorf("nf_tables of %s: the kernel has not all tables, sets and NAT chains that are needed: %w: Linux 5.10 or newer has them, with NF_TABLES_IPV4, NF_TABLES_IPV6 and NF_NAT", l.Family, err)
	}
	for i, c := range chains {
		for _, r := range c.Rules {
			alone := slices.Clone(bare)
			alone[i].Rules = []rule{r}
			if reason := try(alone); reason != nil {
				return fmt.Errorf("nf_tables of %s: the kernel does not take the rule %q of chain %s: %w: it is made of %s, for each of which it must have NFT_ and that name",
					l.Family, r.Says, c.Name, reason, ingredients(r))
			}
		}
	}
	return fmt.Errorf("nf_tables of %s: %w", l.Family, err)
}

// ingredients names the expressions of a rule as the kernel's configuration does.
func ingredients(r rule) string {
	var names []string
	for _, e := range r.Exprs {
		name := strings.ToUpper(strings.TrimPrefix(fmt.Sprintf("%T", e), "*expr."))
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// probeAgain is how often the kernel is asked what it lacks.
const probeAgain = time.Minute

// explain finds out what of all that the rules need the kernel does not have, when it has
// refused what no Service is to blame for.
func (f *family) explain() error {
	if time.Since(f.probed) >= probeAgain {
		f.probed, f.lacks = time.Now(), probe(f.link, f.layout, f.specimens())
		if !errors.Is(f.lacks, fs.ErrPermission) {
			f.lacks = outcome.Caused(outcome.ReasonFeatureMissing, f.lacks)
		}
	}
	return f.lacks
}
