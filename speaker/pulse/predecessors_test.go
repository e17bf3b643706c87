package pulse

import (
	"maps"
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// TestPredecessors follows one address through its owners, as node a sees them.
func TestPredecessors(t *testing.T) {
	here := map[netip.Addr][]links.Link{vip4: {ethernet(2, true)}}
	p := predecessors{}
	var before *Table
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
	} {
		table := Table{Node: "a", Claims: map[netip.Addr]desired.Candidacy{}}
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
	v.Alive["b"] = hello.Member{Serving: true, Unable: map[netip.Addr]bool{vip4: true}}
	p.follow(nil, &Table{Node: "a", Claims: claim(vip4, "b", "c", "a")}, v, nil, nil)
	if got := p.knowing(v.IsAlive)[vip4]; got != "c" {
		t.Errorf("with one that is unable: %q, want c", got)
	}
	// Nor has one that leaves it to those with a subnet.
	v = serving("a", "b", "c")
	v.Alive["b"], v.Alive["c"] = has(farNet), has(lanNet)
	p.follow(nil, &Table{Node: "a", Claims: claim(vip4, "b", "c", "a")}, v, nil, nil)
	if got := p.knowing(v.IsAlive)[vip4]; got != "c" {
		t.Errorf("with one without a subnet: %q, want c", got)
	}
	if p.follow(nil, &Table{Node: "a"}, v, nil, nil); len(p) > 0 {
		t.Errorf("after the Service is gone: %v", p)
	}
	// One that was here from the beginning would have been the next one's.
	p.follow(nil, &Table{Node: "a", Claims: claim(vip4, "a", "b", "c")}, serving("a", "b", "c"), here, nil)
	if p[vip4] != "b" {
		t.Errorf("of one that never was elsewhere: %q, want b", p[vip4])
	}
}

// TestTheStateTellsPredecessors: the agent learns who has an address before it moves here.
func TestTheStateTellsPredecessors(t *testing.T) {
	out := &around{view: serving("a", "b"), links: links.NewSnapshot(ethernet(2, true))}
	s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: over{out, "ARP"}, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, OnLink: onOne{}, Log: testlog.New(t)})
	s.take(delivery{table: Table{Node: "a", Serving: true, Claims: claim(vip4, "b", "a")}, number: 1})
	s.settle()
	if got := s.State().Former[vip4]; got != "b" {
		t.Errorf("before it moves here: %q, want b", got)
	}
	s.take(delivery{table: Table{Node: "a", Serving: true, Claims: claim(vip4, "a", "b")}, number: 2})
	s.settle()
	if got := s.State(); got.Former[vip4] != "b" || len(got.Owned) != 1 {
		t.Errorf("after it moved here: %q, and %v are owned", got.Former[vip4], got.Owned)
	}
}
