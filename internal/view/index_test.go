package view

import (
	"net/netip"
	"slices"
	"testing"
)

// TestIndexIsSortedAndHasNothingEmpty adds and removes twice, in any order.
func TestIndexIsSortedAndHasNothingEmpty(t *testing.T) {
	x, a := Index{}, netip.MustParseAddr("192.0.2.1")
	one, two, three := Ref{Namespace: "a", Name: "z"}, Ref{Namespace: "b", Name: "a"}, Ref{Namespace: "b", Name: "b"}
	for _, ref := range []Ref{three, one, two, one} {
		x.Add(a, ref)
	}
	if want := []Ref{one, two, three}; !slices.Equal(x[a], want) {
		t.Errorf("it has %v, want %v", x[a], want)
	}
	for _, ref := range []Ref{two, two, three} {
		x.Remove(a, ref)
	}
	if want := []Ref{one}; !slices.Equal(x[a], want) {
		t.Errorf("it has %v, want %v", x[a], want)
	}
	x.Remove(a, one)
	x.Remove(a, one)
	if len(x) != 0 {
		t.Errorf("it has %v, want nothing", x)
	}
}
