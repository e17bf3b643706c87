package owner

import (
	"maps"
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// TestPredecessors follows one address through its owners, as node a sees them.
func TestPredecessors(t *testing.T) {
	here := map[netip.Addr][]links.Link{vip4: {linkstest.Ethernet(2, true)}}
	p := previousOwners{}
	var before *api.Table
	for _, step := range []struct {
		name       string
		candidates []string
		alive      []string
		settled    bool
		answers    map[netip.Addr][]links.Link // by this node
		left       bool
		want       map[netip.Addr]string
	}{
		{"it begins, and hears one", []string{"a", "b", "c"}, []string{"a", "c"}, false, nil, false, map[netip.Addr]string{vip4: "c"}},
		{"it hears all", []string{"a", "b", "c"}, []string{"a", "b", "c"}, false, nil, false, map[netip.Addr]string{vip4: "b"}},
		{"it takes over from the one that had it", []string{"a", "b", "c"}, []string{"a", "b", "c"}, true, here, false, map[netip.Addr]string{vip4: "b"}},
		{"which is no candidate any more", []string{"a", "c"}, []string{"a", "b", "c"}, true, here, false, map[netip.Addr]string{vip4: "b"}},
		{"which dies", []string{"a", "c"}, []string{"a", "c"}, true, here, false, map[netip.Addr]string{vip4: ""}},
		{"which is back", []string{"a", "b", "c"}, []string{"a", "b", "c"}, true, here, false, map[netip.Addr]string{vip4: "b"}},
		{"it is preferred elsewhere", []string{"c", "a", "b"}, []string{"a", "b", "c"}, true, nil, false, map[netip.Addr]string{vip4: "c"}},
		{"which dies, too", []string{"c", "a", "b"}, []string{"a", "b"}, true, here, false, map[netip.Addr]string{vip4: ""}},
		{"another one has it by the word of both", []string{"c", "a", "b"}, []string{"a", "b"}, true, here, true, map[netip.Addr]string{vip4: "b"}},
		{"it is here again", []string{"a", "c", "b"}, []string{"a", "b", "c"}, true, here, false, map[netip.Addr]string{vip4: "b"}},
		{"this node is drained", nil, []string{"a", "b", "c"}, true, nil, false, map[netip.Addr]string{vip4: "c"}},
		{"and heard again", nil, []string{"a", "b", "c"}, true, nil, false, map[netip.Addr]string{vip4: "c"}},
		{"it is back", []string{"a", "c", "b"}, []string{"a", "b", "c"}, true, here, false, map[netip.Addr]string{vip4: "c"}},
		{"it is drained again", nil, []string{"a", "b", "c"}, true, nil, false, map[netip.Addr]string{vip4: "c"}},
		{"it is back after the one that had it was drained, too", []string{"a", "b"}, []string{"a", "b", "c"}, true, here, false, map[netip.Addr]string{vip4: "b"}},
	} {
		table := api.Table{Node: "a", Claims: map[netip.Addr]desired.Candidacy{}}
		if step.candidates == nil {
			table.Elsewhere = []netip.Addr{vip4}
		} else {
			table.Claims = claim(vip4, step.candidates...)
		}
		v := serving(step.alive...)
		v.Settled = step.settled
		p.follow(before, &table, v, step.answers, map[netip.Addr]bool{vip4: step.left})
		before = &table
		if got := p.knowing(v.IsAlive); !maps.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
	// One that cannot serve has not got it.
	v := serving("a", "b", "c")
	v.Alive["b"] = hello.Member{Serving: true, Unable: only(vip4)}
	p.follow(nil, &api.Table{Node: "a", Claims: claim(vip4, "b", "c", "a")}, v, nil, nil)
	if got := p.knowing(v.IsAlive)[vip4]; got != "c" {
		t.Errorf("with one that is unable: %q, want c", got)
	}
	// Nor has one that leaves it to those with a subnet.
	v = serving("a", "b", "c")
	v.Alive["b"], v.Alive["c"] = has(farNet), has(lanNet)
	p.follow(nil, &api.Table{Node: "a", Claims: claim(vip4, "b", "c", "a")}, v, nil, nil)
	if got := p.knowing(v.IsAlive)[vip4]; got != "c" {
		t.Errorf("with one without a subnet: %q, want c", got)
	}
	if p.follow(nil, &api.Table{Node: "a"}, v, nil, nil); len(p) > 0 {
		t.Errorf("after the Service is gone: %v", p)
	}
	// One that was here from the beginning would have been the next one's.
	p.follow(nil, &api.Table{Node: "a", Claims: claim(vip4, "a", "b", "c")}, serving("a", "b", "c"), here, nil)
	if p[vip4] != "b" {
		t.Errorf("of one that never was elsewhere: %q, want b", p[vip4])
	}
}

// peersAt are peers with an address of IPv4 each, by name.
func peersAt(addrs map[string]netip.Addr) map[string]hello.Peer {
	peers := map[string]hello.Peer{}
	for name, a := range addrs {
		peers[name] = hello.Peer{Addrs: []netip.Addr{a}}
	}
	return peers
}

// TestWhereConnectionsAreHandedOver: to the node that had the address, else to the candidate that would have it
// without this node; never to one that is dead, nor to this one.
func TestWhereConnectionsAreHandedOver(t *testing.T) {
	addrs := map[string]netip.Addr{"b": netip.MustParseAddr("192.0.2.2"), "c": netip.MustParseAddr("192.0.2.3")}
	table := &api.Table{Node: "a", Peers: peersAt(addrs), Claims: claim(vip4, "a", "b", "c")}
	table.Peers["six"] = hello.Peer{Addrs: []netip.Addr{netip.MustParseAddr("2001:db8:1::1")}}
	drained := *table
	drained.Claims, drained.Elsewhere = nil, []netip.Addr{vip4}
	for name, test := range map[string]struct {
		of    previousOwners
		table *api.Table
		dead  string
		want  string
	}{
		"known":                           {previousOwners{vip4: "c"}, table, "", "c"},
		"known, and dead":                 {previousOwners{vip4: "c"}, table, "c", ""},
		"a node that went":                {previousOwners{vip4: "gone"}, table, "", ""},
		"no address of the family":        {previousOwners{vip4: "six"}, table, "", ""},
		"unknown":                         {previousOwners{}, table, "", "b"},
		"unknown, and the next is dead":   {previousOwners{}, table, "b", "c"},
		"no candidate any more":           {previousOwners{vip4: "b"}, &drained, "", "b"},
		"no candidate, and none is known": {previousOwners{}, &drained, "", ""},
	} {
		dead := func(node string) bool { return node == test.dead }
		got := test.of.nodeAddrs(test.table, func(node string) bool { return !dead(node) }, dead)
		if got[vip4] != addrs[test.want] || len(got) > 1 {
			t.Errorf("%s: %v, want %q", name, got, test.want)
		}
	}
}
