package reusedports

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
)

// TestTheRulesAreKept: what others change is written again, and what is in place is not.
func TestTheRulesAreKept(t *testing.T) {
	node := netlab.NewHost(t, "node")
	find := func(f *Finder) {
		t.Helper()
		var found map[addr.Family][]conntrack.Tuple
		var err error
		node.Do(func() { found, err = f.Find() })
		if err != nil || len(found) > 0 {
			t.Errorf("found %v, %v", found, err)
		}
	}
	rules := func() int { return strings.Count(blackbox.RunOn(t, node, "nft", "list", "ruleset"), "goto known") }
	f := New(nil, testlog.New(t))
	find(f)
	for _, others := range []string{
		"nft flush ruleset", "nft delete table ip6 " + Table, "nft flush chain ip " + Table + " known", "nft insert rule ip " + Table + " arriving accept",
	} {
		blackbox.RunOn(t, node, "sh", "-c", others)
		find(f)
		if n := rules(); n != 8 {
			t.Errorf("after %q: %d rules of 8", others, n)
		}
	}
	before := blackbox.Generation(t, node)
	find(f)
	find(New(nil, testlog.New(t)))
	if n := blackbox.Generation(t, node) - before; n != 0 {
		t.Errorf("%d transactions though nothing was changed", n)
	}
}

// TestFindTellsOnce has tuples be noted, as packets do it.
func TestFindTellsOnce(t *testing.T) {
	node := netlab.NewHost(t, "node")
	node.Do(func() {
		f := New(nil, testlog.New(t))
		if _, err := f.Find(); err != nil {
			t.Fatal(err)
		}
		for _, add := range []string{
			"ip " + Table + " begun { 192.0.2.1 . 1025 . 198.51.100.1 . 80 . tcp }", "ip6 " + Table + " begun { 2001:db8::1 . 4000 . 2001:db8::2 . 80 . sctp }",
		} {
			blackbox.RunOn(t, node, "nft", "add element "+add)
		}
		found, err := f.Find()
		at := netip.MustParseAddrPort
		for family, want := range map[addr.Family]conntrack.Tuple{
			addr.IPv4: {Protocol: "TCP", From: at("192.0.2.1:1025"), To: at("198.51.100.1:80")},
			addr.IPv6: {Protocol: "SCTP", From: at("[2001:db8::1]:4000"), To: at("[2001:db8::2]:80")},
		} {
			if got := found[family]; len(got) != 1 || got[0] != want {
				t.Errorf("found %v, want %v", got, want)
			}
		}
		if again, failed := f.Find(); err != nil || failed != nil || len(again) > 0 {
			t.Errorf("found again: %v, errors %v, %v", again, err, failed)
		}
	})
}

// FuzzParse holds that no element, however odd, ends the process.
func FuzzParse(f *testing.F) {
	f.Add([]byte{192, 0, 2, 1, 0, 80, 0, 0, 192, 0, 2, 2, 0, 80, 0, 0, 6, 0, 0, 0})
	f.Fuzz(func(t *testing.T, key []byte) {
		for _, family := range addr.Families() {
			if tuple, ok := parse(family, key); ok && addr.FamilyOf(tuple.To.Addr()) != family {
				t.Errorf("%s: %v", family, tuple)
			}
		}
	})
}
