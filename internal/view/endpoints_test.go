package view_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/view"
)

// TestEndpointsNeverChange holds that each version has what a plain map would have after
// the same changes, also when later ones were made of it.
func TestEndpointsNeverChange(t *testing.T) {
	same := func(a, b []view.Endpoint) bool {
		return slices.EqualFunc(a, b, func(a, b view.Endpoint) bool { return a.Addr == b.Addr })
	}
	rapid.Check(t, func(t *rapid.T) {
		const services = 100 // some of them in one shard
		ref := func(i int) view.Ref { return view.Ref{Namespace: fmt.Sprint("n", i%3), Name: fmt.Sprint("s", i)} }
		versions, plain := []view.Endpoints{{}}, []map[view.Ref][]view.Endpoint{{}}
		for range rapid.IntRange(1, 6).Draw(t, "versions") {
			of := rapid.IntRange(0, len(versions)-1).Draw(t, "of")
			changed, want := map[view.Ref][]view.Endpoint{}, map[view.Ref][]view.Endpoint{}
			maps.Copy(want, plain[of])
			for range rapid.SampledFrom([]int{0, 1, 3, services / 2}).Draw(t, "changes") {
				r := ref(rapid.IntRange(0, services-1).Draw(t, "service"))
				var endpoints []view.Endpoint
				for range rapid.IntRange(0, 2).Draw(t, "endpoints") {
					endpoints = append(endpoints, view.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "address")})})
				}
				changed[r], want[r] = endpoints, endpoints
			}
			versions, plain = append(versions, versions[of].With(changed)), append(plain, want)
		}
		for v := range versions {
			for i := range services {
				if got, want := versions[v].Of(ref(i)), plain[v][ref(i)]; !same(got, want) {
					t.Fatalf("version %d has %v of %s, want %v", v, got, ref(i), want)
				}
			}
		}
	})
}
