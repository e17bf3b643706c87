package view

import (
	"net/netip"
	"slices"
)

// Index lists by address the objects that have it: each once, sorted, and no address without any.
type Index map[netip.Addr][]Ref

// Add notes that an object has an address.
func (x Index) Add(a netip.Addr, ref Ref) {
	if at, has := slices.BinarySearchFunc(x[a], ref, Ref.Compare); !has {
		x[a] = slices.Insert(x[a], at, ref)
	}
}

// Remove notes that an object has an address no more.
func (x Index) Remove(a netip.Addr, ref Ref) {
	at, has := slices.BinarySearchFunc(x[a], ref, Ref.Compare)
	if !has {
		return
	}
	if x[a] = slices.Delete(x[a], at, at+1); len(x[a]) == 0 {
		delete(x, a)
	}
}
