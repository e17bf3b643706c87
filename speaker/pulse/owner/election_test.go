package owner

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"
	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

var (
	vip4 = netip.MustParseAddr("192.0.2.10")
	vip6 = netip.MustParseAddr("2001:db8::10")
)

// only has these addresses, which are sorted.
func only(addresses ...netip.Addr) (all []netipx.IPRange) {
	for _, a := range addresses {
		all = append(all, netipx.IPRangeFrom(a, a))
	}
	return all
}

func serving(nodes ...string) hello.View {
	v := hello.View{Settled: true, Alive: map[string]hello.Member{}}
	for _, n := range nodes {
		v.Alive[n] = hello.Member{Serving: true}
	}
	return v
}

func claim(a netip.Addr, candidates ...string) map[netip.Addr]desired.Candidacy {
	return map[netip.Addr]desired.Candidacy{a: {Candidates: candidates}}
}

// owns is what the node answers for.
func owns(t *api.Table, v hello.View, r reach) map[netip.Addr][]links.Link {
	mine, _, _ := owned(t, v, r, true, keeper{})
	return mine
}

func TestOwned(t *testing.T) {
	unable := serving("a", "b")
	unable.Alive["b"] = hello.Member{Serving: true, Unable: only(vip4)}
	unsettled := serving("a", "b")
	unsettled.Settled = false
	for name, c := range map[string]struct {
		claims map[netip.Addr]desired.Candidacy
		view   hello.View
		down   bool
		want   bool
	}{
		"the first candidate":                {claim(vip4, "a", "b"), serving("a", "b"), false, true},
		"the second candidate":               {claim(vip4, "b", "a"), serving("a", "b"), false, false},
		"the second, the first is dead":      {claim(vip4, "b", "a"), serving("a"), false, true},
		"the second, the first is unable":    {claim(vip4, "b", "a"), unable, false, true},
		"no candidate":                       {claim(vip4, "b"), serving("a", "b"), false, false},
		"nobody listened long enough":        {claim(vip4, "a"), unsettled, false, false},
		"its interface is down":              {claim(vip4, "a", "b"), serving("a", "b"), true, false},
		"no claims at all":                   {nil, serving("a"), false, false},
		"named interface that is not there":  {map[netip.Addr]desired.Candidacy{vip4: {Candidates: []string{"a"}, Interfaces: []string{"eth9"}}}, serving("a"), false, false},
		"named interface that is there":      {map[netip.Addr]desired.Candidacy{vip4: {Candidates: []string{"a"}, Interfaces: []string{"eth2"}}}, serving("a"), false, true},
		"a candidate that nobody has met":    {claim(vip4, "z", "a"), serving("a", "b"), false, true},
		"a claim with an empty candidate":    {claim(vip4, "", "a"), serving("a"), false, true},
		"a claim without any candidate":      {claim(vip4), serving("a"), false, false},
		"an address of the other family too": {map[netip.Addr]desired.Candidacy{vip4: {Candidates: []string{"a"}}, vip6: {Candidates: []string{"a"}}}, serving("a"), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			table := api.Table{Node: "a", Serving: true, Claims: c.claims}
			r := reachOf(&table, links.NewSnapshot(linkstest.Ethernet(2, !c.down)))
			mine := owns(&table, c.view, r)
			if on, got := mine[vip4]; got != c.want || got && (len(on) != 1 || on[0].Name != "eth2") {
				t.Errorf("owned on %v: %t, want %t", on, got, c.want)
			}
			_, claimed := c.claims[vip6]
			if on, got := mine[vip6]; got != (claimed && c.want) || got && (len(on) != 1 || on[0].Name != "eth2") {
				t.Errorf("the IPv6 address is owned on %v: %t, claimed %t", on, got, claimed)
			}
		})
	}
}

// Of the addresses that nobody can answer for, the first candidate that is alive knows.
func TestNobodyIsBehindWhatNobodyCanAnswerFor(t *testing.T) {
	unable := hello.Member{Serving: true, Unable: only(vip4)}
	for name, c := range map[string]struct {
		candidates []string
		others     map[string]hello.Member
		down       bool
		want       bool
	}{
		"all are unable":                   {[]string{"a", "b"}, map[string]hello.Member{"b": unable}, true, true},
		"an earlier candidate tells of it": {[]string{"b", "a"}, map[string]hello.Member{"b": unable}, true, false},
		"the earlier candidate is dead":    {[]string{"b", "a"}, nil, true, true},
		"another one can":                  {[]string{"a", "b"}, map[string]hello.Member{"b": {Serving: true}}, true, false},
		"this one can":                     {[]string{"a", "b"}, map[string]hello.Member{"b": unable}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			table := api.Table{Node: "a", Serving: true, Claims: claim(vip4, c.candidates...)}
			r := reachOf(&table, links.NewSnapshot(linkstest.Ethernet(2, !c.down)))
			v := serving("a")
			if c.down {
				v.Alive["a"] = unable
			}
			maps.Copy(v.Alive, c.others)
			_, _, behind := owned(&table, v, r, true, keeper{})
			if place, is := behind[vip4]; is != c.want || place.owner != "" {
				t.Errorf("behind %+v: %t, want %t", place, is, c.want)
			}
		})
	}
}

// What the mesh believes of this node follows later: the table counts.
func TestOwnedByTheTablesWord(t *testing.T) {
	unsaid := serving("a", "b")
	unsaid.Alive["a"] = hello.Member{}
	for name, c := range map[string]struct {
		table api.Table
		view  hello.View
		want  bool
	}{
		"serving, and the others do not know yet": {api.Table{Serving: true}, unsaid, true},
		"not serving any more":                    {api.Table{}, serving("a", "b"), false},
		"leaving":                                 {api.Table{Serving: true, Leaving: true}, serving("a", "b"), false},
	} {
		t.Run(name, func(t *testing.T) {
			c.table.Node, c.table.Claims = "a", claim(vip4, "a", "b")
			r := reachOf(&c.table, links.NewSnapshot(linkstest.Ethernet(2, true)))
			if _, got := owns(&c.table, c.view, r)[vip4]; got != c.want {
				t.Errorf("owned: %t, want %t", got, c.want)
			}
		})
	}
}

// A link that cannot be opened counts as no link: what only it serves is unable.
func TestReachWithoutFailedLinks(t *testing.T) {
	only2 := netip.MustParseAddr("192.0.2.11")
	table := api.Table{Node: "a", Serving: true, Claims: map[netip.Addr]desired.Candidacy{
		vip4:  {Candidates: []string{"a"}},
		only2: {Candidates: []string{"a"}, Interfaces: []string{"eth2"}},
		vip6:  {Candidates: []string{"a"}},
	}}
	r := reachOf(&table, links.NewSnapshot(linkstest.Ethernet(2, true), linkstest.Ethernet(3, true)))
	if got := r.networks()[addr.IPv4]; len(got) != 2 || got[0].Index != 2 || got[1].Index != 3 {
		t.Fatalf("links %v", got)
	}
	if got := r.networks()[addr.IPv6]; len(got) != 2 {
		t.Fatalf("links %v for IPv6", got)
	}
	r.without(map[Place]bool{{addr.IPv4, 2}: true}, nil)
	if on := owns(&table, serving("a"), r)[vip6]; len(on) != 2 {
		t.Errorf("%s is owned on %v: IPv4 failed on eth2, and nothing else", vip6, on)
	}
	if got := r.unable(); !slices.Equal(got, []netip.Addr{only2}) {
		t.Errorf("unable %v, want %v", got, only2)
	}
	if on := owns(&table, serving("a"), r)[vip4]; len(on) != 1 || on[0].Index != 3 {
		t.Errorf("%s is owned on %v, want eth3", vip4, on)
	}
}

// Nodes that share a view have exactly one owner for each address that one of
// them can serve, and none for the others.
func TestNodesThatSeeTheSameAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []string
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			nodes = append(nodes, fmt.Sprintf("node-%d", i))
		}
		claims := map[netip.Addr]desired.Candidacy{}
		for i := range rapid.IntRange(1, 20).Draw(t, "addresses") {
			a := netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)})
			if rapid.Bool().Draw(t, "IPv6") {
				a = netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 15: byte(100 + i)})
			}
			c := desired.Candidacy{Candidates: election.Rank(a, nodes)}
			if rapid.Bool().Draw(t, "named") {
				c.Interfaces = []string{"eth2"}
			}
			claims[a] = c
		}
		view := hello.View{Settled: true, Alive: map[string]hello.Member{}}
		tables, reaches := map[string]*api.Table{}, map[string]reach{}
		able := map[netip.Addr]int{}
		for _, n := range nodes {
			snapshot := links.NewSnapshot(
				linkstest.Ethernet(2, rapid.Bool().Draw(t, "eth2 up")), linkstest.Ethernet(3, rapid.Bool().Draw(t, "eth3 up")))
			m := hello.Member{Serving: rapid.Bool().Draw(t, "serving")}
			tables[n] = &api.Table{Node: n, Serving: m.Serving, Claims: claims}
			reaches[n] = reachOf(tables[n], snapshot)
			m.Unable = only(reaches[n].unable()...)
			if rapid.Bool().Draw(t, "alive") {
				view.Alive[n] = m
				for a := range claims {
					if m.CanServe(a) {
						able[a]++
					}
				}
			}
		}
		owners := map[netip.Addr][]string{}
		for _, n := range nodes {
			// A dead node does not share the view; it has none.
			if _, alive := view.Alive[n]; alive {
				for a := range maps.Keys(owns(tables[n], view, reaches[n])) {
					owners[a] = append(owners[a], n)
				}
			}
		}
		for a := range claims {
			if want := min(able[a], 1); len(owners[a]) != want {
				t.Fatalf("%s: %d nodes are able, owners %v", a, able[a], owners[a])
			}
		}
	})
}

// TestNobodyListensFromAnotherNetwork: where the owner has a subnet with the address, a node without one hears
// none of its answers, and stands by for it in vain.
func TestNobodyListensFromAnotherNetwork(t *testing.T) {
	near, far := linkstest.Ethernet(2, true), linkstest.Ethernet(2, true)
	far.Prefixes = []netip.Prefix{netip.MustParsePrefix("198.51.100.2/24")}
	for name, c := range map[string]struct {
		owner hello.Member
		on    links.Link
		named []string
		want  bool
	}{
		"both have it":                         {has(lanNet), near, nil, true},
		"the owner alone":                      {has(lanNet), far, nil, false},
		"neither, and routers reach both":      {has(farNet), far, nil, true},
		"the owner tells of no subnet":         {hello.Member{Serving: true}, far, nil, true},
		"the interfaces of this one are named": {has(lanNet), far, []string{"a"}, true},
	} {
		v := serving("a")
		v.Alive["b"] = c.owner
		table := api.Table{Node: "a", Serving: true, Claims: map[netip.Addr]desired.Candidacy{vip4: {Candidates: []string{"b", "a"}, Named: c.named}}}
		_, _, behind := owned(&table, v, reach{vip4: {c.on}}, true, keeper{})
		if _, got := behind[vip4]; got != c.want {
			t.Errorf("%s: it stands by: %t, want %t", name, got, c.want)
		}
	}
}

func TestWantedJoinsWhatIsUnable(t *testing.T) {
	other := netip.MustParseAddr("192.0.2.11")
	w := wanted(&api.Table{Key: "secret", Serving: true, Leaving: true, Unable: []netip.Addr{other, vip4}}, told{unable: []netip.Addr{vip4}, ready: true})
	if !slices.Equal(w.Unable, []netip.Addr{vip4, other}) || string(w.Key) != "secret" || !w.Serving || !w.Leaving {
		t.Errorf("got %+v", w)
	}
	if w := wanted(&api.Table{Leaving: true, ShutsDown: true}, told{ready: true}); w.Serving || w.Leaving {
		t.Errorf("a node whose machine shuts down is told as %+v: it does not serve, and its silence is a death", w)
	}
	if w := wanted(&api.Table{Serving: true}, told{}); w.Serving {
		t.Error("a node that is not ready is told as serving")
	}
}

func TestPlaced(t *testing.T) {
	v := serving("a", "b", "c")
	v.Alive["c"] = hello.Member{Serving: true, Unable: only(vip4)}
	v.Alive["e"] = has(farNet)
	v.Alive["f"] = hello.Member{Serving: true, Damped: true}
	for name, c := range map[string]struct {
		candidates []string
		want       api.Ownership
	}{
		"the first":                {[]string{"a", "d", "c", "b"}, api.Ownership{Next: "b"}},
		"the only one":             {[]string{"a"}, api.Ownership{}},
		"after two that cannot":    {[]string{"d", "c", "a", "b"}, api.Ownership{Dead: []string{"d"}, Unable: []string{"c"}, Next: "b"}},
		"after one without subnet": {[]string{"e", "a", "b"}, api.Ownership{Distant: []string{"e"}, Next: "e"}},
		"after one that is damped": {[]string{"f", "a", "b"}, api.Ownership{Damped: []string{"f"}, Next: "b"}},
		"whatever it did":          {[]string{"f", "a", "b"}, api.Ownership{Preferred: []string{"f"}, Next: "b"}},
		"the last that can":        {[]string{"d", "a", "c"}, api.Ownership{Dead: []string{"d"}}},
		"no candidate any more":    {[]string{"b", "d"}, api.Ownership{Next: "b"}},
		"while the first is back":  {[]string{"b", "a"}, api.Ownership{Next: "b"}},
	} {
		table := api.Table{Node: "a", Serving: true, Claims: claim(vip4, c.candidates...)}
		if name == "whatever it did" {
			table.Claims[vip4] = desired.Candidacy{Candidates: c.candidates, NoPreempt: true}
		}
		if got := placed(api.Ownership{}, &table, v, vip4); !got.Equal(c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
