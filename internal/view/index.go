package view

import (
	"net/netip"
	"slices"
)

// Index has, by address, who has it: each once, sorted, and no address that nobody has.
type Index map[netip.Addr][]Ref

// Add notes that one has an address.
func (x Index) Add(a netip.Addr, ref Ref) {
	if at, has := slices.BinarySearchFunc(x[a], ref, Ref.Compare); !has {
		x[a] = slices.Insert(x[a], at, ref)
	}
}

// Remove notes that one has it no more.
func (x Index) Remove(a netip.Addr, ref Ref) {
	at, has := slices.BinarySearchFunc(x[a], ref, Ref.Compare)
	if !has {
		return
	}
	if x[a] = slices.Delete(x[a], at, at+1); len(x[a]) == 0 {
		delete(x, a)
	}
}
