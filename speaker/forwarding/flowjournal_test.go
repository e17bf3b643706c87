package forwarding

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
	"fairlead.dev/fairlead/speaker/outcome"
)

// TestWhatIsPutOffIsNotedOnce has a large UDP Service go in portions: the note of its flows is written by the first pass, others
// add what has changed since, and it stays until all is done.
func TestWhatIsPutOffIsNotedOnce(t *testing.T) {
	node := netlab.NewHost(t, "node")
	node.Forward()
	node.Do(func() { notedOnce(t) })
}

func notedOnce(t *testing.T) {
	f, err := New(Config{Mode: NFTables, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}, Delta: desired.Delta[desired.PortKey]{Revision: 1}}
	key := func(service string, i int) desired.PortKey {
		return desired.PortKey{Service: view.Ref{Namespace: "a", Name: service}, Name: fmt.Sprint(i), Protocol: view.UDP, Family: addr.IPv4}
	}
	fill := func(service, vip string, ports int) {
		for i := range ports {
			pods := []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("10.244.0.1"), uint16(i+1))}
			want.Ports[key(service, i)] = desired.Port{
				VIPs: []netip.Addr{netip.MustParseAddr(vip)}, Port: uint16(i + 1), Cluster: pods, Serving: pods, Listed: pods,
			}
		}
	}
	const ports = 1200
	fill("large", "203.0.113.1", ports)
	fill("small", "203.0.113.2", 1)
	pass := func(gone ...desired.PortKey) (putOff int) {
		t.Helper()
		changed := map[desired.PortKey]struct{}{}
		for _, k := range gone {
			delete(want.Ports, k)
			changed[k] = struct{}{}
		}
		want.Advance(changed)
		_, err := f.Apply(t.Context(), want)
		if outcome.Failing(err) != nil {
			t.Fatal(err)
		}
		return len(outcome.PutOff(err))
	}
	noted := func(when string, want int) {
		t.Helper()
		elements, err := ipset.Elements(journalSet(addr.IPv4).Name)
		if err != nil && !errors.Is(err, ipset.ErrMissing) || len(elements) != want || (want == 0) != (err != nil) {
			t.Errorf("%s %d elements are noted, want %d: %v", when, len(elements), want, err)
		}
	}
	for range 2 { // what the first Apply has looked at
		if pass() > 0 {
			t.Fatal("the first pass of a process puts something off")
		}
		if _, err := f.Clean(); err != nil {
			t.Fatal(err)
		}
	}
	var all []desired.PortKey
	for i := range ports {
		all = append(all, key("large", i))
	}
	putOff := pass(all...)
	noted("with the first portion", 2*ports)
	if err := ipset.Delete(journalSet(addr.IPv4).Name, []ipset.Element{{Prefix: addr.HostPrefix(netip.MustParseAddr("203.0.113.1")), Protocol: 17, Port: ports}}); err != nil {
		t.Fatal(err)
	}
	if left := pass(key("small", 0)); left == 0 || left > putOff {
		t.Fatalf("%d ports are put off, then %d", putOff, left)
	}
	noted("with the second portion, and after another Service has gone", 2*ports) // of whose endpoint there is a note
	if _, err := f.Clean(); err != nil {
		t.Fatal(err)
	}
	noted("between portions, when the flows of what is gone are gone", 2*ports)
	for pass() > 0 {
	}
	if _, err := f.Clean(); err != nil {
		t.Fatal(err)
	}
	noted("at the end", 0)
	if err := f.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
}
