package forwarding

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
	"fairlead.dev/fairlead/speaker/outcome"
)

// TestTheSearchForConnectionsTakesLittleTime has Services come without a pause on a node
// whose connection table takes a second to look through: only a part of the time goes into
// that, and in the end all are looked for.
func TestTheSearchForConnectionsTakesLittleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := families()[0]
		var searched time.Duration
		found := map[netip.AddrPort]bool{}
		want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
		c := assembled(t, &scripted{}, func(_ addr.Family, _ view.Protocol, _ sync.Locker, stale func(conntrack.Flow) bool) (int, error) {
			time.Sleep(time.Second)
			searched += time.Second
			for _, p := range want.Ports {
				to := netip.AddrPortFrom(f.vip, p.Port)
				found[to] = found[to] || stale(conntrack.Flow{To: to, Answers: to})
			}
			return 0, nil
		})
		began := time.Now()
		apply := func() {
			if _, err := clean(t, c, want); err != nil {
				t.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		for i := range 600 {
			want.Ports[portKey(fmt.Sprint(i))] = desired.Port{VIPs: []netip.Addr{f.vip}, Port: uint16(i + 1)}
			apply()
		}
		if took := time.Since(began); searched > 5*time.Second+took/15 {
			t.Errorf("of %s, %s went into the search", took, searched)
		}
		time.Sleep(time.Minute)
		apply()
		if len(found) != len(want.Ports) || slices.Contains(slices.Collect(maps.Values(found)), false) {
			t.Errorf("%d of %d Services were looked at", len(found), len(want.Ports))
		}
	})
}

// TestWhenUnansweredConnectionsAreLookedFor has a TCP port come and change, and rules go
// and come back: the connection table is read when that may have left connections past the
// port, or to what serves no more, and at no other time.
func TestWhenUnansweredConnectionsAreLookedFor(t *testing.T) {
	f := families()[0]
	key := portKey("web")
	past := conntrack.Flow{To: netip.AddrPortFrom(f.vip, 80), Answers: netip.AddrPortFrom(f.vip, 80)}
	asking := conntrack.Flow{To: past.To, Answers: netip.AddrPortFrom(f.endpoint["e1"], 8080)}
	type table struct{ reads, past, asking int }
	backend, got := &scripted{}, table{}
	c := assembled(t, backend, func(_ addr.Family, protocol view.Protocol, _ sync.Locker, stale func(conntrack.Flow) bool) (int, error) {
		if protocol != view.TCP {
			t.Errorf("%s flows are looked for", protocol)
		}
		got.reads++
		if stale(past) {
			got.past++
		}
		if stale(asking) {
			got.asking++
		}
		return 0, nil
	})
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
	port := desired.Port{VIPs: []netip.Addr{f.vip}, Port: 80, Serving: []netip.AddrPort{asking.Answers}}
	change := func(p *desired.Port) {
		want.Since, want.Changed = want.Revision, map[desired.PortKey]struct{}{key: {}}
		want.Revision++
		want.Ports = maps.Clone(want.Ports)
		if delete(want.Ports, key); p != nil {
			want.Ports[key] = *p
		}
	}
	moved, emptied, larger := port, port, port
	moved.VIPs, emptied.Serving = []netip.Addr{f.other}, nil
	larger.Serving = append(slices.Clone(port.Serving), netip.AddrPortFrom(f.endpoint["e2"], 8080))
	lacks := outcome.Missing{key: {}}
	for _, step := range []struct {
		name string
		do   func()
		want table
	}{
		{"nothing", func() {}, table{}},
		{"it comes, and the kernel does not take it", func() { change(&port); backend.missing = lacks }, table{}},
		{"the kernel takes it", func() { backend.missing = nil }, table{1, 1, 0}},
		{"nothing", func() {}, table{}},
		{"it gets another endpoint", func() { change(&larger) }, table{}},
		{"it loses its endpoints", func() { change(&emptied) }, table{1, 1, 1}},
		{"it moves", func() { change(&moved) }, table{1, 1, 1}},
		{"it moves back", func() { change(&port) }, table{1, 1, 0}},
		{"it goes", func() { change(nil) }, table{1, 1, 1}},
		{"it comes again", func() { change(&port) }, table{1, 1, 0}},
		{"somebody's flush cannot be repaired", func() {
			backend.repairs, backend.missing, backend.err = 3, lacks, errors.New("the lock")
		}, table{}},
		{"it can", func() { backend.missing, backend.err = nil, nil }, table{1, 1, 0}},
		{"another is repaired at once, though a port is refused", func() {
			other := portKey("other")
			backend.repairs = 4
			backend.missing, backend.err = outcome.Missing{other: {}}, &outcome.RefusedError{Key: other, Err: errors.New("no")}
		}, table{1, 1, 0}},
		{"nothing", func() {}, table{}},
	} {
		got = table{}
		step.do()
		if _, err := clean(t, c, want); !errors.Is(err, backend.err) {
			t.Errorf("%s: %v", step.name, err)
		}
		if got != step.want {
			t.Errorf("%s: the table is read, and flows past the Service and to the endpoint are deleted: %v, want %v", step.name, got, step.want)
		}
	}
}
