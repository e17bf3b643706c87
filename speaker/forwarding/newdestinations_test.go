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
// and come back: the connection table is read when that may have sent connections past the
// port, and at no other time.
func TestWhenUnansweredConnectionsAreLookedFor(t *testing.T) {
	f := families()[0]
	key := portKey("web")
	past := conntrack.Flow{To: netip.AddrPortFrom(f.vip, 80), Answers: netip.AddrPortFrom(f.vip, 80)}
	asking := conntrack.Flow{To: past.To, Answers: netip.AddrPortFrom(f.endpoint["e1"], 8080)}
	backend, reads, deleted := &scripted{}, 0, 0
	c := assembled(t, backend, func(_ addr.Family, protocol view.Protocol, _ sync.Locker, stale func(conntrack.Flow) bool) (int, error) {
		if protocol != view.TCP {
			t.Errorf("%s flows are looked for", protocol)
		}
		if stale(asking) {
			t.Error("a connection to an endpoint is stale")
		}
		reads++
		if stale(past) {
			deleted++
		}
		return 0, nil
	})
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
	port := desired.Port{VIPs: []netip.Addr{f.vip}, Port: 80, Cluster: []netip.AddrPort{asking.Answers}, Anywhere: true}
	change := func(p *desired.Port) {
		want.Since, want.Changed = want.Revision, map[desired.PortKey]struct{}{key: {}}
		want.Revision++
		want.Ports = maps.Clone(want.Ports)
		if delete(want.Ports, key); p != nil {
			want.Ports[key] = *p
		}
	}
	moved := port
	moved.VIPs = []netip.Addr{f.other}
	emptied := port
	emptied.Cluster, emptied.Anywhere = nil, false
	lacks := outcome.Missing{key: {}}
	for _, step := range []struct {
		name           string
		do             func()
		reads, deleted int
	}{
		{"nothing", func() {}, 0, 0},
		{"it comes, and the kernel does not take it", func() { change(&port); backend.missing = lacks }, 0, 0},
		{"the kernel takes it", func() { backend.missing = nil }, 1, 1},
		{"nothing", func() {}, 0, 0},
		{"it loses its endpoints", func() { change(&emptied) }, 0, 0},
		{"it moves", func() { change(&moved) }, 1, 0},
		{"it moves back", func() { change(&port) }, 1, 1},
		{"it goes", func() { change(nil) }, 0, 0},
		{"it comes again", func() { change(&port) }, 1, 1},
		{"somebody's flush cannot be repaired", func() {
			backend.repairs, backend.missing, backend.err = 3, lacks, errors.New("the lock")
		}, 0, 0},
		{"it can", func() { backend.missing, backend.err = nil, nil }, 1, 1},
		{"another is repaired at once, though a port is refused", func() {
			other := portKey("other")
			backend.repairs = 4
			backend.missing, backend.err = outcome.Missing{other: {}}, &outcome.RefusedError{Key: other, Err: errors.New("no")}
		}, 1, 1},
		{"nothing", func() {}, 0, 0},
	} {
		reads, deleted = 0, 0
		step.do()
		if _, err := clean(t, c, want); !errors.Is(err, backend.err) {
			t.Errorf("%s: %v", step.name, err)
		}
		if reads != step.reads || deleted != step.deleted {
			t.Errorf("%s: the table is read %d times, %d flows are deleted, want %d and %d", step.name, reads, deleted, step.reads, step.deleted)
		}
	}
}
