package pulse

import (
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// TestPredecessors follows one address through its owners, as node a sees them.
func TestPredecessors(t *testing.T) {
	here := map[netip.Addr][]links.Link{vip4: {ethernet(2, true)}}
	p := predecessors{}
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
	v.Alive["b"] = hello.Member{Serving: true, Unable: map[netip.Addr]bool{vip4: true}}
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

// inKernel is a kernel that takes at once all that it is to hand over.
type inKernel struct {
	want atomic.Pointer[map[netip.Addr]netip.Addr]
}

func (k *inKernel) Set(want map[netip.Addr]netip.Addr) (tried <-chan struct{}) {
	k.want.Store(&want)
	done := make(chan struct{})
	close(done)
	return done
}

func (*inKernel) Failure() string          { return "" }
func (*inKernel) Changed() <-chan struct{} { return nil }

// to is what was set last.
func (k *inKernel) to() map[netip.Addr]netip.Addr {
	if want := k.want.Load(); want != nil {
		return *want
	}
	return nil
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
		of    predecessors
		table *api.Table
		dead  string
		want  string
	}{
		"known":                           {predecessors{vip4: "c"}, table, "", "c"},
		"known, and dead":                 {predecessors{vip4: "c"}, table, "c", ""},
		"a node that went":                {predecessors{vip4: "gone"}, table, "", ""},
		"no address of the family":        {predecessors{vip4: "six"}, table, "", ""},
		"unknown":                         {predecessors{}, table, "", "b"},
		"unknown, and the next is dead":   {predecessors{}, table, "b", "c"},
		"no candidate any more":           {predecessors{vip4: "b"}, &drained, "", "b"},
		"no candidate, and none is known": {predecessors{}, &drained, "", ""},
	} {
		dead := func(node string) bool { return node == test.dead }
		got := test.of.nodeAddrs(test.table, func(node string) bool { return !dead(node) }, dead)
		if got[vip4] != addrs[test.want] || len(got) > 1 {
			t.Errorf("%s: %v, want %q", name, got, test.want)
		}
	}
}

// TestConnectionsAreHandedOverBeforeAnAddressIsAnsweredFor: the kernel knows the previous owner before the address
// moves here, and at the latest when it does; a node that leaves goes on as it was.
func TestConnectionsAreHandedOverBeforeAnAddressIsAnsweredFor(t *testing.T) {
	out := &around{view: serving("a", "b"), links: links.NewSnapshot(ethernet(2, true))}
	kernel, b := &inKernel{}, netip.MustParseAddr("192.0.2.2")
	s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: over{out, "ARP"}, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, OnLink: onOne{}, Handover: kernel, Log: testlog.New(t)})
	tell := func(number uint64, table api.Table) {
		table.Node, table.Peers = "a", peersAt(map[string]netip.Addr{"b": b})
		s.take(delivery{table: table, number: number})
		s.settle()
	}
	tell(1, api.Table{Serving: true, Claims: claim(vip4, "b", "a")})
	if got := kernel.to()[vip4]; got != b {
		t.Errorf("before it moves here: %v, want %v", got, b)
	}
	tell(2, api.Table{Serving: true, Claims: claim(vip4, "a", "b")})
	if got := s.State(); kernel.to()[vip4] != b || len(got.Owned) != 1 {
		t.Errorf("after it moved here: %v, and %v are owned", kernel.to(), got.Owned)
	}
	tell(3, api.Table{Leaving: true})
	if got := kernel.to()[vip4]; got != b {
		t.Errorf("while this node leaves: %v, want %v", got, b)
	}
}

// slow is a kernel that another program keeps busy until it is done.
type slow struct {
	inKernel

	done    chan struct{}
	out     *around
	failure string
}

func (k *slow) Set(want map[netip.Addr]netip.Addr) (tried <-chan struct{}) {
	k.inKernel.Set(want)
	k.out.did = append(k.out.did, "hands over")
	return k.done
}

func (k *slow) Failure() string { return k.failure }

// TestAnAddressWaitsForTheKernelAndNotForLong: until it hands over, the address is not answered for, unless that
// takes long; and the agent is told what the kernel refuses.
func TestAnAddressWaitsForTheKernelAndNotForLong(t *testing.T) {
	for name, takes := range map[string]time.Duration{"soon": handoverWithin / 2, "never": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			out := &around{view: serving("a", "b"), links: links.NewSnapshot(ethernet(2, true))}
			kernel := &slow{done: make(chan struct{}), out: out, failure: "no NFT_DUP"}
			s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: over{out, "ARP"}, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, OnLink: onOne{}, Handover: kernel, Log: testlog.New(t)})
			time.AfterFunc(takes, func() { close(kernel.done) })
			began := time.Now()
			s.take(delivery{table: api.Table{Node: "a", Serving: true, Claims: claim(vip4, "a", "b"), Peers: map[string]hello.Peer{}}, number: 1})
			s.settle()
			if got, want := time.Since(began), min(takes, handoverWithin); got != want {
				t.Errorf("%s: answered for after %v, want %v", name, got, want)
			}
			first, answers := slices.Index(out.did, "hands over"), slices.Index(out.did, "answers [192.0.2.10] over ARP")
			if first < 0 || answers < first {
				t.Errorf("%s: did %q", name, out.did)
			}
			if got := s.State().Handover; got != kernel.failure {
				t.Errorf("%s: told %q, want %q", name, got, kernel.failure)
			}
			began = time.Now()
			if s.settle(); !time.Now().Equal(began) {
				t.Errorf("%s: what is answered for waits again", name)
			}
		})
	}
}
