package election

import (
	"hash/fnv"
	"io"
	"slices"
)

// Tiers are candidates in groups: all of one come before all of the next, and within each the
// weights for an address decide. Thousands of addresses may share them. They never change.
type Tiers struct {
	groups [][]string
	among  []string
	of     map[string]int // by node; nil if there is one group
	digest uint64         // of the groups
}

// NewTiers returns tiers of groups of nodes, each sorted, and no node in two of them.
func NewTiers(groups ...[]string) *Tiers {
	digest := fnv.New64a()
	for _, group := range groups {
		for _, node := range group {
			_, _ = io.WriteString(digest, node+"\n") // never fails
		}
		_, _ = io.WriteString(digest, "\n")
	}
	if len(groups) == 1 {
		return &Tiers{groups: groups, among: groups[0], digest: digest.Sum64()}
	}
	t := &Tiers{groups: groups, among: slices.Concat(groups...), of: map[string]int{}, digest: digest.Sum64()}
	slices.Sort(t.among)
	for i, group := range groups {
		for _, node := range group {
			t.of[node] = i
		}
	}
	return t
}

// Groups returns the groups. The caller does not change them.
func (t *Tiers) Groups() [][]string { return t.groups }

// Among returns all the nodes, sorted. The caller does not change them.
func (t *Tiers) Among() []string { return t.among }

// Digest returns a number that is the same for equal tiers, in all processes, and another one for others.
func (t *Tiers) Digest() uint64 { return t.digest }

// Order returns the nodes in the order of ranked, the result of Rank, but group by group, and with first
// ("": none) in front of its own group. It does not change ranked, and may return it.
func (t *Tiers) Order(ranked []string, first string) []string {
	if first != "" {
		if i := slices.Index(ranked, first); i > 0 {
			ranked = slices.Concat([]string{first}, ranked[:i], ranked[i+1:])
		}
	}
	if t.of == nil {
		return ranked
	}
	next := make([]int, len(t.groups))
	for i := 1; i < len(next); i++ {
		next[i] = next[i-1] + len(t.groups[i-1])
	}
	ordered := make([]string, len(ranked))
	for _, node := range ranked {
		i := t.of[node]
		ordered[next[i]] = node
		next[i]++
	}
	return ordered
}

// Equal reports whether both order any candidates the same; either may be nil.
func (t *Tiers) Equal(o *Tiers) bool {
	if t == nil || o == nil {
		return t == o
	}
	return slices.EqualFunc(t.groups, o.groups, slices.Equal)
}
