package election_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/election"
)

func nodes(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("node-%04d", i))
	}
	return names
}

func address(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(i / 256), byte(i)}) }

// apart spreads addresses from nothing.
func apart(among []string, addresses []netip.Addr) map[netip.Addr]string {
	var s election.Spread
	g := s.Among(addr.IPv4, among)
	for _, a := range addresses {
		s.Put(a, g)
	}
	s.Settle()
	return owners(&s, addresses)
}

func owners(s *election.Spread, addresses []netip.Addr) map[netip.Addr]string {
	of := map[netip.Addr]string{}
	for _, a := range addresses {
		of[a], _ = s.Node(a)
	}
	return of
}

func weight(node string, a netip.Addr) []byte {
	digest := sha256.Sum256(fmt.Appendf(nil, "%s#%s", node, a))
	return digest[:]
}

// stable fails unless nobody is without a node, no node has more than its capacity, and no
// address and node would both rather have each other: that defines the one right answer.
func stable(t *rapid.T, among []string, of map[netip.Addr]string) {
	load, worst := map[string]int{}, map[string][]byte{}
	for a, node := range of {
		if !slices.Contains(among, node) {
			t.Fatalf("%s is at %q, which is none of %v", a, node, among)
		}
		load[node]++
		if w := weight(node, a); bytes.Compare(w, worst[node]) > 0 {
			worst[node] = w
		}
	}
	for _, node := range among {
		room := election.Capacity(node, len(of), len(among))
		if load[node] > room {
			t.Fatalf("%s has %d of %d addresses, and room for %d", node, load[node], len(of), room)
		}
		for a, at := range of {
			w := weight(node, a)
			if bytes.Compare(w, weight(at, a)) < 0 && (load[node] < room || bytes.Compare(w, worst[node]) < 0) {
				t.Fatalf("%s is at %s, but it and %s (%d of %d) would rather have each other", a, at, node, load[node], room)
			}
		}
	}
}

// TestSpreadAfterAnyHistory: whatever came and went, and between which groups, the matching is
// the one that is found from nothing, and Settle tells of all that moved and nothing else.
func TestSpreadAfterAnyHistory(t *testing.T) {
	sets := [][]string{nodes(1), nodes(2), nodes(3), nodes(7)}
	rapid.Check(t, func(t *rapid.T) {
		var s election.Spread
		in := map[netip.Addr]int{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			before := owners(&s, slices.Collect(maps.Keys(in)))
			again := map[netip.Addr]bool{}
			for range rapid.IntRange(1, 30).Draw(t, "changes") {
				a := address(rapid.IntRange(0, 80).Draw(t, "address"))
				again[a] = true
				set := rapid.IntRange(-3, len(sets)-1).Draw(t, "set")
				if set < 0 {
					s.Put(a, nil)
					delete(in, a)
					continue
				}
				s.Put(a, s.Among(addr.IPv4, sets[set]))
				in[a] = set
			}
			moved := s.Settle()
			now := owners(&s, slices.Collect(maps.Keys(in)))
			for a, at := range now {
				if _, told := moved[a]; !again[a] && told != (before[a] != at) {
					t.Fatalf("%s was at %s and is at %s: told %t", a, before[a], at, told)
				}
			}
			for i, among := range sets {
				of := map[netip.Addr]string{}
				for a, set := range in {
					if set == i {
						of[a] = now[a]
					}
				}
				stable(t, among, of)
				if fresh := apart(among, slices.Collect(maps.Keys(of))); !maps.Equal(fresh, of) {
					t.Fatalf("after this history %v, from nothing %v", of, fresh)
				}
			}
		}
		for a := range in {
			s.Put(a, nil)
		}
		s.Settle()
		if held := s.Held(); held != 0 {
			t.Fatalf("%d addresses and groups are kept of an empty spread", held)
		}
	})
}

// TestNodesComeAndGo: whichever nodes come and go, while addresses do too, the matching is the one
// from nothing.
func TestNodesComeAndGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s election.Spread
		all := nodes(12)
		in := map[netip.Addr]int{} // to which of two sets, which overlap
		var sets [2][]string
		for range rapid.IntRange(2, 8).Draw(t, "steps") {
			for i := range sets {
				few := rapid.IntRange(1, len(all)).Draw(t, "nodes")
				if rapid.Bool().Draw(t, "most of them") || sets[i] == nil {
					few = len(all) - 1
				}
				sets[i] = slices.Sorted(slices.Values(rapid.Permutation(all).Draw(t, "of")[:few]))
			}
			for range rapid.IntRange(0, 60).Draw(t, "changes") {
				a, set := address(rapid.IntRange(0, 150).Draw(t, "address")), rapid.IntRange(-1, 1).Draw(t, "set")
				if set < 0 {
					s.Put(a, nil)
					delete(in, a)
					continue
				}
				in[a] = set
				if rapid.IntRange(0, 9).Draw(t, "twice") == 0 {
					s.Put(a, s.Among(addr.IPv4, sets[1-set]))
				}
			}
			for a, set := range in {
				s.Put(a, s.Among(addr.IPv4, sets[set]))
			}
			s.Settle()
			of := owners(&s, slices.Collect(maps.Keys(in)))
			for i, among := range sets {
				here := map[netip.Addr]string{}
				for a, set := range in {
					if set == i || slices.Equal(sets[0], sets[1]) {
						here[a] = of[a]
					}
				}
				stable(t, among, here)
			}
		}
	})
}

// TestNobodyIsMovedWithoutNeed: where no node has more than its share by the hash alone, all
// is as by the hash alone, and as MetalLB has it; and who is not at its first choice finds it full.
func TestNobodyIsMovedWithoutNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		among := nodes(rapid.IntRange(1, 9).Draw(t, "nodes"))
		var all []netip.Addr
		first, wanted, load := map[netip.Addr]string{}, map[string]int{}, map[string]int{}
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 999), 0, 60, rapid.ID).Draw(t, "addresses") {
			a := address(i)
			all = append(all, a)
			first[a] = election.Rank(a, among)[0]
			wanted[first[a]]++
		}
		of := apart(among, all)
		for _, at := range of {
			load[at]++
		}
		fits := true
		for _, node := range among {
			fits = fits && wanted[node] <= election.Capacity(node, len(all), len(among))
		}
		for a, at := range of {
			if at != first[a] && (fits || load[first[a]] < election.Capacity(first[a], len(all), len(among))) {
				t.Fatalf("%s is at %s though its first choice %s is not full", a, at, first[a])
			}
		}
	})
}

// TestCapacityHasRoomForAll holds the bound that is documented: room for all and a quarter
// more, and no node more than 15/8 of the mean and one and a half, or eleven where there are few.
func TestCapacityHasRoomForAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 1000).Draw(t, "nodes")
		n := rapid.IntRange(0, 20000).Draw(t, "addresses")
		node := fmt.Sprint("node-", rapid.IntRange(0, 1000).Draw(t, "node"))
		room := election.Capacity(node, n, k)
		if 4*room*k < 5*n || room < 8 {
			t.Fatalf("room for %d of %d on %d nodes is less than five quarters of the mean, or than 8", room, n, k)
		}
		if 8*room*k > max(11*8*k, 15*n+12*k) {
			t.Fatalf("room for %d of %d on %d nodes is too much", room, n, k)
		}
		if more := election.Capacity(node, n+1, k); more < room {
			t.Fatalf("room for %d of %d, and for %d of one more", room, n, more)
		}
	})
}

// TestFewMove counts whom a change moves beside those that it is about. Services come one
// after another until each node has twenty-four on average, and nodes go and come.
func TestFewMove(t *testing.T) {
	for _, k := range []int{3, 10, 50} {
		t.Run(fmt.Sprint(k, " nodes"), func(t *testing.T) {
			var s election.Spread
			among := nodes(k)
			g := s.Among(addr.IPv4, among)
			total, most, calm := 0, 0, 0
			n := 24 * k
			for i := range n {
				s.Put(address(i), g)
				moved := len(s.Settle())
				total, most = total+moved, max(most, moved)
				if moved == 0 {
					calm++
				}
			}
			t.Logf("%d came one by one: %d others moved, %d at once at most, and none for %d", n, total, most, calm)
			if total*100 > 15*n || most > 12 || calm*100 < 90*n {
				t.Errorf("want fewer than 15 %%, twelve at once at most, and none for 90 %%")
			}
			for _, mean := range []int{2, 3, 6, 12, 24} {
				var all []netip.Addr
				for i := range mean * k {
					all = append(all, address(i))
				}
				before, after := apart(among, all), apart(among[1:], all)
				own, others := 0, 0
				for a, at := range before {
					switch {
					case at == among[0]:
						own++
					case after[a] != at:
						others++
					}
				}
				t.Logf("a node of %d went, with %d of %d addresses: %d of others moved", k, own, len(all), others)
				if others > max(2, own) {
					t.Errorf("want no more than it had itself")
				}
			}
		})
	}
}

// TestSpreadIsEven compares the busiest node with that by the hash alone.
func TestSpreadIsEven(t *testing.T) {
	for _, n := range []int{30, 100, 1000} {
		among := nodes(10)
		hashed, spread, limit := map[string]int{}, map[string]int{}, 0
		var all []netip.Addr
		for i := range n {
			all = append(all, address(i))
			hashed[election.Rank(address(i), among)[0]]++
		}
		for _, at := range apart(among, all) {
			spread[at]++
		}
		for _, node := range among {
			limit = max(limit, election.Capacity(node, n, len(among)))
		}
		most := func(of map[string]int) int { return slices.Max(slices.Collect(maps.Values(of))) }
		t.Logf("%d addresses on 10 nodes: %d at most by the hash alone, %d with bounded load, %d allowed", n, most(hashed), most(spread), limit)
		if most(spread) > limit {
			t.Errorf("%d addresses on a node", most(spread))
		}
	}
}

func BenchmarkSpread(b *testing.B) {
	for _, size := range []struct{ addresses, nodes int }{{1000, 10}, {10000, 100}, {10000, 1000}} {
		among := nodes(size.nodes)
		fill := func() *election.Spread {
			var s election.Spread
			g := s.Among(addr.IPv4, among)
			for i := range size.addresses {
				s.Put(address(i), g)
			}
			s.Settle()
			return &s
		}
		name := fmt.Sprintf("%dx%d", size.addresses, size.nodes)
		b.Run("fresh/"+name, func(b *testing.B) {
			for b.Loop() {
				fill()
			}
		})
		b.Run("change/"+name, func(b *testing.B) {
			s := fill()
			g := s.Among(addr.IPv4, among)
			i, moved := 0, 0
			for b.Loop() {
				a := address(i % 65536)
				if _, has := s.Node(a); has {
					s.Put(a, nil)
				} else {
					s.Put(a, g)
				}
				moved += len(s.Settle())
				i += 7919
			}
			b.ReportMetric(float64(moved)/float64(b.N), "moved/op")
		})
		b.Run("node/"+name, func(b *testing.B) {
			s := fill()
			fewer := among[1:]
			for i := 0; b.Loop(); i++ {
				of := fewer
				if i%2 == 1 {
					of = among
				}
				for i := range size.addresses {
					s.Put(address(i), s.Among(addr.IPv4, of))
				}
				s.Settle()
			}
		})
	}
}
