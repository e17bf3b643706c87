package election

import (
	"net/netip"
	"slices"
)

// Orders ranks nodes for many addresses again and again, at the cost of the nodes that came and went
// since the last time. The zero Orders is ready; one goroutine at a time may use it.
type Orders struct {
	of     map[netip.Addr]order
	ranker ranker
	// Thousands of addresses may go to the same thousand nodes, so the last comparison is kept.
	before, now []string
	gone        map[string]bool
	come        []string
}

type order struct{ among, ranked []string }

// Rank returns what the function of that name returns. nodes are sorted. The caller changes neither them
// afterwards nor the result.
func (o *Orders) Rank(address netip.Addr, nodes []string) []string {
	last, known := o.of[address]
	if known {
		o.compare(last.among, nodes)
	}
	var ranked []string
	switch {
	case !known || len(o.gone)+len(o.come) > len(nodes)/2:
		ranked = o.ranker.rank(address, nodes)
	case len(o.gone)+len(o.come) == 0:
		ranked = last.ranked
	default:
		ranked = make([]string, 0, len(nodes)+len(o.gone))
		for _, node := range last.ranked {
			if !o.gone[node] {
				ranked = append(ranked, node)
			}
		}
		of := newWeigher(address)
		for _, node := range o.come {
			own := of.weigh(node)
			i, _ := slices.BinarySearchFunc(ranked, own, func(other string, own weight) int {
				w := of.weigh(other)
				return w.compare(&own)
			})
			ranked = slices.Insert(ranked, i, node)
		}
	}
	if o.of == nil {
		o.of = map[netip.Addr]order{}
	}
	o.of[address] = order{among: nodes, ranked: ranked}
	return ranked
}

// Keep drops the orders of addresses for which keep returns false.
func (o *Orders) Keep(keep func(netip.Addr) bool) {
	for address := range o.of {
		if !keep(address) {
			delete(o.of, address)
		}
	}
}

// Forget drops the order of an address.
func (o *Orders) Forget(address netip.Addr) { delete(o.of, address) }

// compare finds which nodes came and went between two lists.
func (o *Orders) compare(before, now []string) {
	if isSame(before, o.before) && isSame(now, o.now) {
		return
	}
	o.before, o.now, o.gone, o.come = before, now, map[string]bool{}, nil
	if isSame(before, now) {
		return
	}
	i := 0
	for _, node := range now {
		for ; i < len(before) && before[i] < node; i++ {
			o.gone[before[i]] = true
		}
		if i < len(before) && before[i] == node {
			i++
		} else {
			o.come = append(o.come, node)
		}
	}
	for ; i < len(before); i++ {
		o.gone[before[i]] = true
	}
}

// isSame reports whether two lists are one, and no copies.
func isSame(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
