// Package claims decides which of several ports gets a destination that all of them
// claim: the one with the lowest rank, and of several the lowest key, so that the order of events does not matter.
package claims

import (
	"cmp"
	"slices"

	"fairlead.dev/fairlead/speaker/desired"
)

// Claims are who claims each destination, and what for. The zero value has none.
type Claims[D comparable, V any] struct {
	of map[D][]Claim[V] // sorted by rank and key
}

// Claim is that of one port.
type Claim[V any] struct {
	Key   desired.PortKey
	Rank  int // see desired.Port
	Value V
}

// Claim makes or changes the claim of a port.
func (c *Claims[D, V]) Claim(at D, claim Claim[V]) {
	if c.of == nil {
		c.of = map[D][]Claim[V]{}
	}
	c.Release(at, claim.Key)
	i, _ := slices.BinarySearchFunc(c.of[at], claim, func(a, b Claim[V]) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), a.Key.Compare(b.Key))
	})
	c.of[at] = slices.Insert(c.of[at], i, claim)
}

// Release takes the claim of a port back, if it has one.
func (c *Claims[D, V]) Release(at D, key desired.PortKey) {
	claims := c.of[at]
	i := slices.IndexFunc(claims, func(c Claim[V]) bool { return c.Key == key })
	switch {
	case i < 0:
	case len(claims) == 1:
		delete(c.of, at)
	default:
		c.of[at] = slices.Delete(claims, i, i+1)
	}
}

// Holder is the claim that counts.
func (c *Claims[D, V]) Holder(at D) (Claim[V], bool) {
	claims := c.of[at]
	if len(claims) == 0 {
		return Claim[V]{}, false
	}
	return claims[0], true
}
