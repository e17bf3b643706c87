package handover

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// handedFrom are addresses that nodes had before; n of each family.
func handedFrom(n int) map[netip.Addr]netip.Addr {
	want := map[netip.Addr]netip.Addr{}
	for i := range n {
		want[netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})] = netip.AddrFrom4([4]byte{192, 0, 2, byte(i % 3)})
		want[netip.AddrFrom16([16]byte{0x20, 1, 14: byte(i >> 8), 15: byte(i)})] = netip.AddrFrom16([16]byte{0x20, 2, 15: byte(i % 3)})
	}
	return want
}

// TestTheHandoverIsKept follows it through changes, a restart, what others do to it, and the end.
func TestTheHandoverIsKept(t *testing.T) {
	node := netlab.NewHost(t, "node")
	run := func(command string) string {
		t.Helper()
		return blackbox.RunOn(t, node, "sh", "-c", command)
	}
	h := NewTable()
	apply := func(want map[netip.Addr]netip.Addr) {
		t.Helper()
		var err error
		node.Do(func() { err = h.Apply(want) })
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range addr.Families() {
			own := maps.Clone(want)
			maps.DeleteFunc(own, func(a, _ netip.Addr) bool { return addr.FamilyOf(a) != f })
			// While the kernel makes more room for a map that has grown, it leaves some out.
			for began := time.Now(); ; time.Sleep(time.Millisecond) {
				var placed map[netip.Addr]netip.Addr
				node.Do(func() { placed, _, err = newTable(f).elements() })
				if maps.Equal(placed, own) || len(own) == 0 {
					break
				}
				if time.Since(began) > blackbox.AnswerIn {
					t.Fatalf("%s: handed over is %v (%v), want %v", f, placed, err, own)
				}
			}
		}
	}
	written := func(do func()) uint32 {
		t.Helper()
		before := blackbox.Generation(t, node)
		do()
		return blackbox.Generation(t, node) - before
	}
	disturbed := func() (is bool) { node.Do(func() { is = h.Disturbed() }); return is }

	apply(nil)
	if got := run("nft list tables"); got != "" {
		t.Errorf("without anything to hand over there are %s", got)
	}
	want := handedFrom(700) // several messages
	apply(want)
	if n := written(func() { apply(want) }); n != 0 {
		t.Errorf("%d transactions though nothing changed", n)
	}
	want = handedFrom(500)
	some := netip.MustParseAddr("198.51.0.1")
	want[some] = netip.MustParseAddr("192.0.2.77")
	if n := written(func() { apply(want) }); n != 2 {
		t.Errorf("%d transactions for a change of both families, want 2", n)
	}
	h = NewTable()
	if n := written(func() { apply(want) }); n != 0 {
		t.Errorf("%d transactions after a restart, want none", n)
	}
	if run("nft add table ip other"); disturbed() {
		t.Error("disturbed by a table of somebody else")
	}
	for _, others := range []string{
		"nft flush ruleset", "nft delete table ip6 fairlead-handover", "nft flush chain ip fairlead-handover arriving",
		"nft insert rule ip fairlead-handover arriving accept",
	} {
		run(others)
		if !disturbed() {
			t.Errorf("not disturbed by %q", others)
		}
		apply(want)
		if disturbed() {
			t.Errorf("still disturbed after %q was repaired", others)
		}
	}
	h = NewTable()
	run("nft flush map ip fairlead-handover former")
	apply(want)
	if got := run("nft list chain ip6 fairlead-handover arriving"); !strings.Contains(got, "dup to ip6 daddr map @former") || !strings.Contains(got, "ip6 hoplimit set 17") {
		t.Errorf("nft shows\n%s", got)
	}
	var err error
	node.Do(func() { err = nftable.Remove(kernelwatch.HandoverTable) })
	if got := run("nft list tables"); err != nil || strings.Contains(got, "fairlead") {
		t.Errorf("cleaning up: %v, and left %s", err, got)
	}
	if !disturbed() {
		t.Error("not disturbed though the tables are gone")
	}
	apply(want) // begins anew
}

// TestAHandoverThatGoesWhileItIsReadIsRepaired has others delete the tables at any moment of an Apply: either
// that writes them again, or says that there is something to repair.
func TestAHandoverThatGoesWhileItIsReadIsRepaired(t *testing.T) {
	node := netlab.NewHost(t, "node")
	want := handedFrom(1)
	node.Do(func() {
		others := nftable.NewSocket(nil)
		defer others.Close()
		for i := range 200 {
			if err := NewTable().Apply(want); err != nil {
				t.Fatal(err)
			}
			h, done := NewTable(), make(chan error, 1)
			table := h.families[0].NFT
			go node.Do(func() {
				time.Sleep(time.Duration(i) * 10 * time.Microsecond)
				done <- others.Commit(func(b *nftable.Batch) { b.Conn.DelTable(table) })
			})
			err := h.Apply(want)
			if gone := <-done; gone != nil {
				t.Fatal(gone)
			}
			there, _, _ := h.families[0].Look()
			if err == nil && !there && !h.Disturbed() {
				t.Fatalf("attempt %d: the table is gone, and nothing is to be repaired", i)
			}
			if err := h.Apply(want); err != nil { // which may have met the deletion
				t.Log(err)
			}
		}
	})
}

// TestWithoutTheRightNothingIsHandedOver has the error say what is lost; with the right, all is well.
func TestWithoutTheRightNothingIsHandedOver(t *testing.T) {
	node := netlab.NewHost(t, "node")
	node.Do(func() {
		h := NewTable()
		blackbox.Powerless(t, func() {
			for range 2 { // and is not asked for all the time
				if err := h.Apply(handedFrom(1)); err == nil || !strings.Contains(err.Error(), "connections of IPv4") || !strings.Contains(err.Error(), unix.EPERM.Error()) {
					t.Errorf("error %v, want one that tells of the right and of what is lost", err)
				}
			}
		})
		for _, f := range h.families {
			f.tried = f.tried.Add(-tryEvery)
		}
		if err := h.Apply(handedFrom(1)); err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkHandover is one address that moves among many.
func BenchmarkHandover(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			node := netlab.NewHost(b, "node")
			node.Do(func() {
				h, want := NewTable(), handedFrom(n)
				if err := h.Apply(want); err != nil {
					b.Error(err)
				}
				some := netip.MustParseAddr("198.51.0.1")
				b.ResetTimer()
				for i := range b.N {
					want[some] = netip.AddrFrom4([4]byte{192, 0, 2, 10 + byte(i%2)})
					if err := h.Apply(want); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
