package outcome_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

// kernel holds what was written to it.
type kernel struct {
	portions outcome.Portions
	held     map[desired.PortKey]desired.Port
	want     desired.Forwarding
	blind    bool // does not know what has changed
}

func kernelOf(most int, held map[desired.PortKey]desired.Port) *kernel {
	return &kernel{portions: outcome.Portions{Most: most}, held: held, blind: true}
}

// differences are what all that is wanted and all that is held differ by.
func (k *kernel) differences(want map[desired.PortKey]desired.Port) []desired.Change {
	return (desired.Forwarding{Ports: want}).Changes(k.held, 0, nil)
}

// pass writes what Next says of what is wanted, and returns that, and whether something is put off.
func (k *kernel) pass(want map[desired.PortKey]desired.Port) (now []desired.Change, putOff map[desired.PortKey]struct{}) {
	changed, at := map[desired.PortKey]struct{}{}, k.want.Revision
	for _, c := range (desired.Forwarding{Ports: want}).Changes(k.want.Ports, 0, nil) {
		changed[c.Key] = struct{}{}
	}
	if k.want.Ports = want; k.blind {
		k.want.Restart()
	} else {
		k.want.Advance(changed)
	}
	k.blind = false
	changes := k.portions.Changes(k.want, k.held, at, nil)
	k.portions.All() // as an attempt begins
	now = k.portions.Next(changes)
	for _, c := range now {
		if c.To == nil {
			delete(k.held, c.Key)
		} else {
			k.held[c.Key] = *c.To
		}
	}
	return now, outcome.PutOff(k.portions.Err())
}

// of are ports of one Service, with so many endpoints each.
func of(service string, ports, endpoints int) map[desired.PortKey]desired.Port {
	all := map[desired.PortKey]desired.Port{}
	for i := range ports {
		p := desired.Port{ClusterIP: netip.AddrFrom4([4]byte{10, 96, service[0], 0}), Port: uint16(i + 1)}
		for e := range endpoints {
			p.Cluster = append(p.Cluster, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(e >> 8), byte(e)}), 80))
		}
		all[desired.PortKey{Service: view.Ref{Namespace: "a", Name: service}, Name: fmt.Sprint(i), Protocol: view.TCP, Family: addr.IPv4}] = p
	}
	return all
}

func together(services ...map[desired.PortKey]desired.Port) map[desired.PortKey]desired.Port {
	all := map[desired.PortKey]desired.Port{}
	for _, s := range services {
		maps.Copy(all, s)
	}
	return all
}

// TestPortions has any Services follow any others: those whose changes fit into a portion are written at once, of the
// others no pass writes more than a portion, or one port, and in the end all is as wanted.
func TestPortions(t *testing.T) {
	t.Parallel()
	const most = 20
	weight := func(c desired.Change) int {
		endpoints := 0
		for _, p := range []*desired.Port{c.From, c.To} {
			if p != nil {
				endpoints = max(endpoints, len(p.Cluster))
			}
		}
		return 2 * (1 + endpoints)
	}
	rapid.Check(t, func(t *rapid.T) {
		k := kernelOf(most, map[desired.PortKey]desired.Port{})
		for range 3 {
			want := map[desired.PortKey]desired.Port{}
			for _, name := range []string{"a", "b", "c", "d"} {
				maps.Copy(want, of(name, rapid.IntRange(0, 12).Draw(t, "ports"), rapid.IntRange(0, 12).Draw(t, "endpoints")))
			}
			portion := true // of large ones, in the pass before
			for more, passes := true, 0; more; passes++ {
				left := map[view.Ref]int{} // weight of what differs
				for _, c := range k.differences(want) {
					left[c.Key.Service] += weight(c)
				}
				now, putOff := k.pass(want)
				written, large, ports := map[view.Ref]int{}, 0, 0
				for _, c := range now {
					written[c.Key.Service] += weight(c)
					if left[c.Key.Service] > most {
						large, ports = large+weight(c), ports+1
					}
				}
				for service, w := range left {
					if w <= most && written[service] != w {
						t.Fatalf("of %s, which is small, %d of %d are written", service, written[service], w)
					}
				}
				if large > most && ports > 1 {
					t.Fatalf("a portion of %d", large)
				}
				if more = len(putOff) > 0; more && ports == 0 && !portion || passes > 200 {
					t.Fatalf("nothing goes on in pass %d", passes)
				}
				if left := k.differences(want); len(left) != len(putOff) || slices.ContainsFunc(left, func(c desired.Change) bool {
					_, is := putOff[c.Key]
					return !is
				}) {
					t.Fatalf("%d ports are put off, and %d are left", len(putOff), len(left))
				}
				if k.blind = rapid.Bool().Draw(t, "blind"); rapid.Bool().Draw(t, "changes") && passes < 20 {
					want = maps.Clone(want)
					maps.Copy(want, of(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "of"), rapid.IntRange(0, 6).Draw(t, "first ports"), rapid.IntRange(0, 12).Draw(t, "endpoints")))
					more = true
				}
				portion = ports > 0 || more && len(putOff) == 0
			}
			if !maps.EqualFunc(k.held, want, desired.Port.Equal) {
				t.Fatal("the end is not what is wanted")
			}
		}
	})
}

// TestOthersComeBetweenPortions has a small Service change while a giant is programmed, changes and goes, and another large one
// come whose turn comes though the giant changes all the time.
func TestOthersComeBetweenPortions(t *testing.T) {
	t.Parallel()
	k := kernelOf(100, map[desired.PortKey]desired.Port{})
	for _, step := range []struct {
		name  string
		giant map[desired.PortKey]desired.Port
	}{{"new", of("g", 1000, 4)}, {"changed", of("g", 1000, 3)}, {"gone", nil}} { // a port weighs 10
		passes, before := 0, 0
		for more := true; more; passes++ {
			small := of("s", 1, 1+passes%3)
			now, putOff := k.pass(together(step.giant, small))
			for key, p := range small {
				if !k.held[key].Equal(p) {
					t.Fatalf("%s: the small one waits in pass %d", step.name, passes)
				}
			}
			more = len(putOff) > 0
			if passes > 1000 {
				t.Fatalf("%s: %d ports never have their turn", step.name, len(putOff))
			}
			if len(now) > 13 || more && len(now) > 1 && before > 1 { // the last ports are few
				t.Fatalf("%s: %d ports in a pass, after one with %d", step.name, len(now), before)
			}
			before = len(now)
		}
		if passes < 150 || passes > 210 {
			t.Errorf("%s: %d passes, want some two hundred: the small one waits for one portion at most", step.name, passes)
		}
	}
	for passes := range 50 {
		k.pass(together(of("g", 1000, 3+passes%2), of("z", 20, 4)))
	}
	for key := range of("z", 20, 4) {
		if _, is := k.held[key]; !is {
			t.Fatalf("%v never has its turn", key)
		}
	}
}

// TestHeirsWait has a port get what a port of a giant has, which is about to go: it is not said to be in place before that port
// has gone, unless it comes before it. What another large Service has it need not wait for.
func TestHeirsWait(t *testing.T) {
	t.Parallel()
	vip, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	giant := of("g", 50, 4)
	last := slices.SortedFunc(maps.Keys(giant), desired.PortKey.Compare)[49]
	for key, p := range giant {
		p.VIPs, p.NodePort = []netip.Addr{vip}, 30000+p.Port
		giant[key] = p
	}
	at := giant[last]
	for name, test := range map[string]struct {
		service string
		heir    func(p *desired.Port)
		waits   bool
	}{
		"the address":                   {"z", func(p *desired.Port) { p.VIPs = []netip.Addr{vip} }, true},
		"the NodePort":                  {"z", func(p *desired.Port) { p.NodePort = at.NodePort }, true},
		"the ClusterIP":                 {"z", func(p *desired.Port) { p.ClusterIP = at.ClusterIP }, true},
		"before the giant":              {"a", func(p *desired.Port) { p.VIPs = []netip.Addr{vip} }, false},
		"an externalIP":                 {"a", func(p *desired.Port) { p.ExternalIPs = []netip.Addr{vip} }, true},
		"another port of the address":   {"z", func(p *desired.Port) { p.VIPs, p.Port = []netip.Addr{vip}, 9999 }, false},
		"the same port of another one":  {"z", func(p *desired.Port) { p.VIPs = []netip.Addr{other} }, false},
		"without an endpoint, a guest":  {"a", func(p *desired.Port) { p.VIPs, p.Guest, p.Cluster = []netip.Addr{vip}, []netip.Addr{vip}, nil }, true},
		"nothing that the giant has":    {"z", func(*desired.Port) {}, false},
		"a NodePort that it has not":    {"z", func(p *desired.Port) { p.NodePort = 32000 }, false},
		"the address, with another one": {"z", func(p *desired.Port) { p.VIPs = []netip.Addr{other, vip} }, true},
	} {
		k := kernelOf(100, maps.Clone(giant))
		heir := of(test.service, 1, 1)
		for key, p := range heir {
			p.Port = at.Port
			test.heir(&p)
			heir[key] = p
		}
		k.pass(heir)
		for key := range heir {
			if _, is := k.held[key]; is == test.waits {
				t.Errorf("%s: in place %t, want %t", name, is, !test.waits)
			}
		}
		for passes := 0; len(k.held) > 1; passes++ {
			if k.pass(heir); passes > 50 {
				t.Fatalf("%s: the giant does not go", name)
			}
		}
		for key, p := range heir {
			if !k.held[key].Equal(p) {
				t.Errorf("%s: not in place in the end", name)
			}
		}
	}
}

// TestPutOffIsNoFailure holds what is made of an error that puts off.
func TestPutOffIsNoFailure(t *testing.T) {
	t.Parallel()
	key := desired.PortKey{Service: view.Ref{Name: "g"}, Family: addr.IPv4}
	err := error(&outcome.PutOffError{Ports: map[desired.PortKey]struct{}{key: {}}})
	if outcome.Failing(err) != nil || !outcome.Settled(err, addr.IPv4) || outcome.Behind(outcome.Missing{key: {}}, err)[addr.IPv4] {
		t.Error("what is put off is taken for a failure")
	}
	failed := &outcome.FamilyError{Family: addr.IPv4, Err: fmt.Errorf("the lock")}
	if err := fmt.Errorf("apply: %w", failed); outcome.Failing(err) == nil || outcome.PutOff(err) != nil {
		t.Error("a failure is taken for what is put off")
	}
}
