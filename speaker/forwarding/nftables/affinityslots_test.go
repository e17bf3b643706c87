package nftables

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestAffinitySlots holds, through any comings and goings, that no two endpoints have one affinity slot,
// that those who stay keep theirs, and that who comes back gets another.
func TestAffinitySlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &slotAssignment{id: 7 * idStep}
		var before map[netip.AddrPort]uint32
		last := map[netip.AddrPort]uint32{} // slots of all that were there
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			var endpoints []netip.AddrPort
			for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(1, 12), 0, 12, rapid.ID[int]).Draw(t, "endpoints") {
				endpoints = append(endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 80))
			}
			s = s.next(endpoints)
			now := map[netip.AddrPort]uint32{}
			seen := map[uint32]bool{}
			for _, e := range endpoints {
				now[e] = s.slot(e)
				if seen[now[e]] || now[e]&^slotMask != s.id || now[e]&slotMask == 0 {
					t.Fatalf("slot %#x of %s is not its own", now[e], e)
				}
				seen[now[e]] = true
				old, stayed := before[e]
				if stayed && old != now[e] {
					t.Fatalf("%s moved from %#x to %#x", e, old, now[e])
				}
				if was, known := last[e]; known && !stayed && was == now[e] {
					t.Fatalf("%s came back to %#x", e, was)
				}
			}
			before = now
			maps.Copy(last, now)
		}
	})
}

// TestSlotsRunOut holds that a port whose slots have all been used goes on.
func TestSlotsRunOut(t *testing.T) {
	s := &slotAssignment{id: idStep, last: slotMask - 1}
	var endpoints []netip.AddrPort
	for n := range byte(4) {
		endpoints = append(endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 80))
	}
	s = s.next(endpoints)
	want := []uint32{slotMask, 1, 2, 3}
	for i, e := range endpoints {
		if got := s.slot(e) & slotMask; got != want[i] {
			t.Errorf("endpoint %d has slot %d, want %d", i, got, want[i])
		}
	}
}

// TestMoreEndpointsThanChairs holds that a port with affinity is refused that has more endpoints than
// there are slots, in both of its sets together, and one with as many is not.
func TestMoreEndpointsThanChairs(t *testing.T) {
	at := func(from, to int) (all []netip.AddrPort) {
		for n := from; n < to; n++ {
			all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), 80))
		}
		return all
	}
	key := desired.PortKey{Service: view.Ref{Name: "web"}, Protocol: view.TCP, Family: addr.IPv4}
	p := desired.Port{ClusterIP: netip.MustParseAddr("10.96.0.1"), Port: 80, Affinity: time.Hour}
	for _, test := range []struct {
		cluster, local []netip.AddrPort
		wanted         bool
	}{
		{at(0, slotMask), nil, true},
		{at(0, slotMask), at(0, 10), true},
		{at(0, slotMask), at(slotMask, slotMask+1), false},
		{at(0, slotMask+1), nil, false},
	} {
		p.Cluster, p.Local = test.cluster, test.local
		l := newModel(newLayout(addr.IPv4))
		if _, err := l.step(desired.Change{Key: key, To: &p}); (err == nil) != test.wanted {
			t.Errorf("%d and %d endpoints: %v", len(test.cluster), len(test.local), err)
		}
	}
}

// TestIDs holds that no two ports have one id, that an id that was given back is given again last, since
// the kernel knows clients of it, that an id of an earlier process is found again, and that ids can run out.
func TestIDs(t *testing.T) {
	key := func(n int) desired.PortKey { return desired.PortKey{Service: view.Ref{Name: fmt.Sprint(n)}} }
	is := func(i *ids, n int, from []item, want uint32) {
		t.Helper()
		if s, err := i.begin(key(n), from); err != nil || s.id != want*idStep {
			t.Errorf("port %d: %v, %v, want id %d", n, s, err, want)
		}
	}
	i := newIDs()
	at := func(n int) []item { return []item{{affinityPorts, fmt.Sprint(n)}} }
	a := netip.MustParseAddrPort("10.0.0.1:80")
	i.remember(recall{ids: map[item]uint32{at(9)[0]: 5 * idStep}, slots: map[uint32]map[netip.AddrPort]uint32{5 * idStep: {a: 3}}})
	is(i, 1, nil, 6)
	is(i, 2, nil, 7)
	is(i, 1, nil, 6)
	i.release(key(1))
	is(i, 3, nil, 8)
	is(i, 9, at(9), 5)
	if s, _ := i.begin(key(9), at(9)); s.slots[a] != 3 || s.last != 3 {
		t.Errorf("the affinityEndpoints of an earlier process are %v", s)
	}
	is(i, 10, at(9), 9) // it is another's by now
	i.last = idCount * idStep
	is(i, 11, nil, 1)
	i.last = 4 * idStep
	is(i, 12, nil, 6) // 5 is taken, and 6 was given back
	for n := uint32(idStep); n != 0; n += idStep {
		i.taken[n] = true
	}
	if s, err := i.begin(key(13), nil); err == nil {
		t.Errorf("id %d was given twice", s.id/idStep)
	}
}
