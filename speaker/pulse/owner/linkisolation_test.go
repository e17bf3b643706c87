package owner

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/linkcheck"
)

var (
	lanNet = netip.MustParsePrefix("192.0.2.0/24")
	farNet = netip.MustParsePrefix("198.51.100.0/24")
)

// has is a node that tells of an interface in the subnet.
func has(subnet netip.Prefix) hello.Member {
	return hello.Member{Serving: true, Heard: true, Interfaces: []hello.Interface{{ID: hello.IDOf("eth0"), Subnets: []netip.Prefix{subnet}}}}
}

func TestNearNodesComeFirst(t *testing.T) {
	near4, far, mute := has(lanNet), has(farNet), hello.Member{Serving: true, Heard: true}
	part := far
	part.Part = true
	dead := hello.Member{}
	for name, c := range map[string]struct {
		order []hello.Member
		named []string // of whom interfaces are
		want  int
	}{
		"a subnet before none":                {order: []hello.Member{far, near4}, want: 1},
		"the first of those with one":         {order: []hello.Member{far, near4, near4}, want: 1},
		"none has one":                        {order: []hello.Member{far, far}},
		"one that is not able does not count": {order: []hello.Member{far, dead}},
		"named interfaces need none":          {order: []hello.Member{far, near4}, named: []string{"0"}},
		"nor does the next":                   {order: []hello.Member{far, far, near4}, named: []string{"1"}, want: 1},
		"an old release does not say":         {order: []hello.Member{mute, near4}},
		"nor who does not tell all":           {order: []hello.Member{part, near4}},
		"an old release after one with none":  {order: []hello.Member{far, mute}},
		"an old release among them":           {order: []hello.Member{far, mute, near4}, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			v, claim := hello.View{Settled: true, Alive: map[string]hello.Member{}}, desired.Candidacy{}
			for i, m := range c.order {
				v.Alive[fmt.Sprint(i)] = m
				claim.Candidates = append(claim.Candidates, fmt.Sprint(i))
			}
			claim.Named = c.named
			got, ok := near(claim, vip4, v, func(n string) bool { return v.CanServe(n, vip4) })
			if !ok || got != fmt.Sprint(c.want) {
				t.Errorf("%q, want %d", got, c.want)
			}
		})
	}
}

// Whatever nodes say of their subnets, and whichever are of an old release, that goes by the order
// alone: one answers if any is able, and not two.
func TestNodesOfTwoReleasesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, claim, old := hello.View{Settled: true, Alive: map[string]hello.Member{}}, desired.Candidacy{}, map[string]bool{}
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			n := fmt.Sprint(i)
			claim.Candidates = append(claim.Candidates, n)
			switch old[n] = rapid.Bool().Draw(t, "old"); {
			case old[n]:
				v.Alive[n] = hello.Member{Serving: true, Heard: true}
			case rapid.Bool().Draw(t, "near"):
				v.Alive[n] = has(lanNet)
			default:
				v.Alive[n] = has(farNet)
			}
			if rapid.IntRange(0, 3).Draw(t, "able") == 0 {
				delete(v.Alive, n)
			}
		}
		able := func(n string) bool { return v.CanServe(n, vip4) }
		var answer []string
		for _, n := range claim.Candidates {
			owner, ok := near(claim, vip4, v, able)
			if old[n] {
				owner, ok = election.Owner(claim.Candidates, able)
			}
			if ok && owner == n {
				answer = append(answer, n)
			}
		}
		if want := min(len(v.Alive), 1); len(answer) != want {
			t.Fatalf("%v answer; able are %v, old %v", answer, v.Alive, old)
		}
	})
}

// one is a link in a subnet apart from the one of the mesh, or in none.
func one(index int, prefixes ...string) links.Link {
	l := linkstest.Port(index, fmt.Sprintf("eth%d", index), "192.0.2.1/24", true)
	l.Prefixes = nil
	for _, p := range prefixes {
		l.Prefixes = append(l.Prefixes, netip.MustParsePrefix(p))
	}
	return l
}

func TestLinksApart(t *testing.T) {
	node4, node6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	both, four, six, other := one(1, "192.0.2.1/24", "2001:db8::1/64"), one(2, "192.0.2.1/24"), one(3, "2001:db8::1/64"), one(4, "203.0.113.1/24")
	for name, c := range map[string]struct {
		on   []links.Link
		want []int
	}{
		"all addresses on one link":     {[]links.Link{both, other}, []int{4}},
		"a family on each, which hides": {[]links.Link{four, six}, []int{2, 3}},
	} {
		r := reach{vip4: c.on, vip6: c.on}
		var got []int
		for _, l := range r.networks().apartFrom([]netip.Addr{node4, node6}) {
			got = append(got, l.Index)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestWhichLinksAreCutOff(t *testing.T) {
	me, b, c := hello.IDOf("a"), hello.IDOf("b"), hello.IDOf("c")
	subnet := []netip.Prefix{lanNet}
	for name, k := range map[string]struct {
		link   links.Link
		status linkcheck.Status
		theirs hello.Interface
		want   bool
	}{
		"others hear each other":         {one(1, "192.0.2.1/24"), linkcheck.Status{Silent: true}, hello.Interface{Subnets: subnet, Heard: []hello.ID{c}}, true},
		"it is heard":                    {one(1, "192.0.2.1/24"), linkcheck.Status{}, hello.Interface{Subnets: subnet, Heard: []hello.ID{c}}, false},
		"another hears this node":        {one(1, "192.0.2.1/24"), linkcheck.Status{Silent: true}, hello.Interface{Subnets: subnet, Heard: []hello.ID{me}}, false},
		"nobody hears anybody":           {one(1, "192.0.2.1/24"), linkcheck.Status{Silent: true}, hello.Interface{Subnets: subnet}, false},
		"in another subnet":              {one(1, "192.0.2.1/24"), linkcheck.Status{Silent: true, Met: map[string]hello.ID{"b": b}}, hello.Interface{ID: b, Subnets: []netip.Prefix{farNet}, Heard: []hello.ID{c}}, false},
		"without subnets, the name":      {one(1), linkcheck.Status{Silent: true}, hello.Interface{ID: hello.IDOf("eth1"), Heard: []hello.ID{c}}, true},
		"without subnets, another name":  {one(1), linkcheck.Status{Silent: true}, hello.Interface{ID: hello.IDOf("eth2"), Heard: []hello.ID{c}}, false},
		"without subnets, met there":     {one(1), linkcheck.Status{Silent: true, Met: map[string]hello.ID{"b": b}}, hello.Interface{ID: b, Heard: []hello.ID{c}}, true},
		"without subnets, met elsewhere": {one(1), linkcheck.Status{Silent: true, Met: map[string]hello.ID{"b": c}}, hello.Interface{ID: b, Heard: []hello.ID{c}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := serving("a", "b", "c")
			m := v.Alive["b"]
			m.Interfaces = []hello.Interface{k.theirs}
			v.Alive["b"] = m
			var ap linkIsolation
			ap.judge("a", v, []links.Link{k.link}, map[int]linkcheck.Status{1: k.status})
			if ap.cut[1] != k.want {
				t.Errorf("cut off: %t", ap.cut[1])
			}
		})
	}
}

// Whatever links are cut off, each address that any candidate is able to answer for is still somebody's,
// and it is one whose link is not cut off where there is one. No node changes its mind by what
// others then say.
func TestNeverNobodyForACutLink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			names = append(names, fmt.Sprint(i))
		}
		v, cut := serving(names...), map[string]bool{}
		candidates := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, -1, rapid.ID[string]).Draw(t, "candidates")
		for _, n := range names {
			cut[n] = rapid.Bool().Draw(t, "cut off")
			m := v.Alive[n]
			m.Interfaces = []hello.Interface{{ID: hello.IDOf("eth1"), Subnets: []netip.Prefix{lanNet}, CutOff: cut[n]}}
			v.Alive[n] = m
		}
		say := func() (changed bool) {
			for _, n := range names {
				r := reach{vip4: []links.Link{one(1, "192.0.2.1/24")}}
				ap := linkIsolation{cut: map[int]bool{1: cut[n]}}
				ap.limit(r, &api.Table{Node: n, Claims: map[netip.Addr]desired.Candidacy{vip4: {Candidates: candidates}}}, v, nil)
				m, unable := v.Alive[n], len(r[vip4]) == 0
				changed = changed || unable != (len(m.Unable) > 0)
				if m.Unable = nil; unable {
					m.Unable = only(vip4)
				}
				v.Alive[n] = m
			}
			return changed
		}
		for range 3 {
			say()
		}
		if say() {
			t.Fatal("they do not agree in the end")
		}
		owner, ok := election.Owner(candidates, func(n string) bool { return v.CanServe(n, vip4) })
		sound := slices.ContainsFunc(candidates, func(n string) bool { return !cut[n] })
		if !ok || cut[owner] && sound {
			t.Fatalf("owner %q of %v; cut off are %v", owner, candidates, cut)
		}
	})
}
