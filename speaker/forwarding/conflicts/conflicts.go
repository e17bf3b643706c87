// Package conflicts decides which of several ports gets a destination that all of them want: the one
// with the lowest rank, and among equals the one with the lowest key, whatever the order of events.
package conflicts

import (
	"cmp"
	"slices"

	"fairlead.dev/fairlead/speaker/desired"
)

// Destinations holds the candidates for each destination. The zero value has none.
type Destinations[D comparable, V any] struct {
	of map[D][]Candidate[V] // sorted by rank and key
}

// Candidate is a port that wants a destination.
type Candidate[V any] struct {
	Key   desired.PortKey
	Rank  int // see desired.Port
	Value V
}

// Set adds the candidacy of a port, or changes it.
func (c *Destinations[D, V]) Set(at D, candidate Candidate[V]) {
	if c.of == nil {
		c.of = map[D][]Candidate[V]{}
	}
	c.Release(at, candidate.Key)
	i, _ := slices.BinarySearchFunc(c.of[at], candidate, func(a, b Candidate[V]) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), a.Key.Compare(b.Key))
	})
	c.of[at] = slices.Insert(c.of[at], i, candidate)
}

// Release removes the candidacy of a port, if there is one.
func (c *Destinations[D, V]) Release(at D, key desired.PortKey) {
	candidates := c.of[at]
	i := slices.IndexFunc(candidates, func(c Candidate[V]) bool { return c.Key == key })
	switch {
	case i < 0:
	case len(candidates) == 1:
		delete(c.of, at)
	default:
		c.of[at] = slices.Delete(candidates, i, i+1)
	}
}

// Winner returns the candidate that gets the destination; false if there is none.
func (c *Destinations[D, V]) Winner(at D) (Candidate[V], bool) {
	candidates := c.of[at]
	if len(candidates) == 0 {
		return Candidate[V]{}, false
	}
	return candidates[0], true
}
