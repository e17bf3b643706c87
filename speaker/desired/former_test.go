package desired_test

import (
	"maps"
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// Connections are handed over to the node that the hellos tell of, else to the candidate that
// would have the address without this node; never to one that is dead, nor to this one.
func TestWhoHadAnAddressBefore(t *testing.T) {
	vip := ip("192.0.2.10")
	decide := func(change func(c *view.Cluster)) map[netip.Addr]netip.Addr {
		c := cluster(service(), endpoint("10.0.0.1", "a"))
		c.Configured = true
		change(c)
		got, _ := fresh(c, onNode("a"))
		return got.Forwarding.Former
	}
	told := func(node string) func(c *view.Cluster) {
		return func(c *view.Cluster) { c.Former = &view.Former{Of: map[netip.Addr]string{vip: node}} }
	}
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	got, _ := fresh(c, onNode("a"))
	var others []string
	for _, node := range got.Layer2[vip].Candidates {
		if node != "a" {
			others = append(others, node)
		}
	}
	at := func(node string) netip.Addr { return c.Nodes[node].Addresses[0] }
	for name, test := range map[string]struct {
		change func(c *view.Cluster)
		want   netip.Addr
	}{
		"told":             {told(others[1]), at(others[1])},
		"told of nobody":   {told(""), netip.Addr{}},
		"a node that went": {told("gone"), netip.Addr{}},
		"told of one that is drained": {func(c *view.Cluster) {
			told(others[1])(c)
			c.Nodes[others[1]].Excluded = true
		}, at(others[1])},
		"not told": {func(*view.Cluster) {}, at(others[0])},
		"not told, and the next is dead": {func(c *view.Cluster) {
			c.Fall(view.RollCall{Alive: []string{"a", others[1]}, Silent: []string{others[0]}})
		}, at(others[1])},
		"no candidate any more": {func(c *view.Cluster) {
			told(others[0])(c)
			c.Nodes["a"].Excluded = true
		}, at(others[0])},
		"never a candidate": {func(c *view.Cluster) { c.Nodes["a"].Excluded = true }, netip.Addr{}},
		"no address of the family": {func(c *view.Cluster) {
			told(others[0])(c)
			c.Nodes[others[0]].Addresses = []netip.Addr{ip("2001:db8:1::1")}
		}, netip.Addr{}},
	} {
		if got := decide(test.change); got == nil || got[vip] != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if got := decide(func(c *view.Cluster) { c.Configured = false }); got != nil {
		t.Errorf("before our kinds are read: %v, want nothing said", got)
	}
}

// The state has a number that changes just if the state does.
func TestHandingIsNumbered(t *testing.T) {
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	c.Configured, c.Changes = true, view.Changes{Revision: 1, Others: true}
	engine := desired.NewEngine(onNode("a"))
	first, _ := engine.Decide(c)
	before, number := maps.Clone(first.Forwarding.Former), first.Forwarding.FormerRevision
	if len(before) == 0 || number == 0 {
		t.Fatalf("%v, numbered %d", before, number)
	}
	for address, node := range before {
		if addr.FamilyOf(address) != addr.FamilyOf(node) {
			t.Errorf("%s is handed over to %s", address, node)
		}
	}
	again := *c
	again.Changes = view.Changes{Revision: 2, Since: 1}
	if got, _ := engine.Decide(&again); got.Forwarding.FormerRevision != number {
		t.Errorf("numbered %d though nothing changed, want %d", got.Forwarding.FormerRevision, number)
	}
	moved := again
	moved.Former = &view.Former{Of: map[netip.Addr]string{ip("192.0.2.10"): ""}}
	moved.Changes = view.Changes{Revision: 3, Since: 2}
	if got, _ := engine.Decide(&moved); got.Forwarding.FormerRevision == number || len(got.Forwarding.Former) != len(before)-1 {
		t.Errorf("%v, numbered %d, after nobody had it", got.Forwarding.Former, got.Forwarding.FormerRevision)
	}
}
