package reusedports

import (
	"fmt"
	"net/netip"
	"os/exec"
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
	rules := func() int { return strings.Count(blackbox.RunOn(t, node, "nft", "list", "ruleset"), "goto ") }
	f := New(nil, testlog.New(t))
	find(f)
	for _, others := range []string{
		"nft flush ruleset", "nft delete table ip6 " + Table, "nft flush chain ip " + Table + " of-tcp", "nft insert rule ip " + Table + " arriving accept",
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

// TestFindTellsAgain has tuples be noted, as packets do it. They are told anew once all were, however many they are, and that there is no room for others.
func TestFindTellsAgain(t *testing.T) {
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
			t.Errorf("found again at once: %v, errors %v, %v", again, err, failed)
		}
		if again, err := f.Find(); err != nil || len(again) != 2 {
			t.Errorf("found later: %v, %v, want both", again, err)
		}

		var many strings.Builder
		for i := range most - 1 {
			fmt.Fprintf(&many, "192.0.2.1 . %d . 198.51.100.1 . 443 . tcp,", 1025+i)
		}
		add := exec.CommandContext(t.Context(), "nft", "-f", "-")
		add.Stdin = strings.NewReader("add element ip " + Table + " begun {" + many.String() + "}")
		if out, err := add.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		told := map[conntrack.Tuple]bool{}
		for looks := 0; len(told) < most; looks++ {
			if looks > 2*most/atOnce+2 {
				t.Fatalf("%d told of %d after %d looks", len(told), most, looks)
			}
			found, err = f.Find()
			if err == nil || !strings.Contains(err.Error(), "of IPv4 has little room left of 4096") {
				t.Fatalf("a full set: %v", err)
			}
			for _, tuple := range found[addr.IPv4] {
				told[tuple] = true
			}
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
