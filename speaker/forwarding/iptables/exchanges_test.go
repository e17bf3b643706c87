package iptables

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
)

// exchanges are what other programs do that puts as many rules in place of ours: an older iptables that saves what
// it cannot read as no match, and writes it back, as network policy controllers do and what keeps rules over a boot,
// and single rules that are replaced.
func (c *cluster) exchanges() []string {
	saved := func(edit string) string {
		var all []string
		for _, f := range addr.Families() {
			for _, table := range []string{"nat", "filter"} {
				of := commands{c.variant, f}
				all = append(all, fmt.Sprintf("%s -t %s | sed -E '/^-A FAIRLEAD/{ %s }' >$dir/saved && %s -w <$dir/saved", of.program("save"), table, edit, of.program("restore")))
			}
		}
		return "dir=$(mktemp -d); trap 'rm -r $dir' EXIT; " + strings.Join(all, " && ")
	}
	rules := func(f addr.Family, table, chain string) (program string, all []string) {
		program = strings.TrimSuffix(commands{c.variant, f}.program(""), "-")
		return program + " -w -t " + table, strings.Split(strings.TrimSpace(c.Run(program, "-t", table, "-S", chain)), "\n")[1:]
	}
	moved := func(f addr.Family, table, chain string) string {
		program, all := rules(f, table, chain)
		last := len(all)
		return fmt.Sprintf("%s -D %s %d && %[1]s -I %[4]s", program, chain, last, strings.TrimPrefix(all[last-1], "-A "))
	}
	replaced := func(f addr.Family, table, chain string) string {
		program, all := rules(f, table, chain)
		from := map[addr.Family]string{addr.IPv4: "192.0.2.99", addr.IPv6: "2001:db8:99::1"}[f]
		return fmt.Sprintf("%s -R %s %d -d %s -j RETURN", program, chain, len(all), from)
	}
	return []string{
		saved("s/ -m mark (! )?--mark [^ ]+//; s/ -m tcp --dport [0-9]+//"),
		saved("s/ -m set (! )?--match-set [^ ]+ [^ ]+//; s/ -m conntrack( (! )?--ct[a-z]+ [A-Z,]+)+//; s/ -m comment --comment (\"[^\"]*\"|[^ ]+)//"),
		saved("s/-j ACCEPT/-j RETURN/"),
		replaced(addr.IPv4, "filter", chainForward), replaced(addr.IPv6, "nat", chainClearMasq),
		replaced(addr.IPv4, "nat", chainInto(c, addr.IPv4)), replaced(addr.IPv6, "nat", chainInto(c, addr.IPv6)),
		replaced(addr.IPv6, "filter", chainServices), moved(addr.IPv4, "filter", chainForward), moved(addr.IPv6, "nat", chainPostrouting),
	}
}

// TestRulesInPlaceOfOursAreReplaced has others put rules in place of ours, as many of them, some twice: they are
// replaced and counted within a second, and by a process that begins after them.
func TestRulesInPlaceOfOursAreReplaced(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Apply(want)
		c.Apply(want) // the first write may have made the tables themselves
		sound, exchanges := c.rules(), c.exchanges()
		exchange := func(how string) {
			t.Helper()
			if c.Run("sh", "-c", how); c.rules() == sound {
				t.Fatalf("%s changes nothing", how)
			}
		}
		for _, how := range exchanges {
			exchange(how)
			c.Restart()
			if c.Apply(want); c.rules() != sound {
				t.Errorf("after %s a process that begins leaves the rules\n%s\nwant\n%s", how, c.rules(), sound)
			}
		}
		c.keep(want)
		const soon = 3 * time.Second // each of the legacy tables of a family is read once a second
		for _, how := range slices.Concat(exchanges, exchanges[:1], exchanges[3:5]) {
			least, before := time.Hour, c.repairs()
			for range 10 { // the machine does other things too
				c.peace()
				c.Run("sh", "-c", how)
				if least = min(least, c.until(patience, c.rules, sound)); least < soon {
					break
				}
			}
			if least > soon || c.repairs() == before {
				t.Errorf("%s is repaired after %s and counted %d times", how, least, c.repairs()-before)
			}
		}
	})
}

// compare applies want, and has all tables read for that.
func (c *cluster) compare(want desired.Forwarding) {
	for _, f := range c.backend.families {
		f.reading.full, f.reading.whole = kernelwatch.Pace{}, 0
	}
	c.Apply(want)
}

// TestWhatOthersChangeBeforeItIsReadBack has others change rules before each reading of legacy tables, also of that right after
// a second write: theirs are not taken for how a release prints ours, nor known and left.
func TestWhatOthersChangeBeforeItIsReadBack(t *testing.T) {
	withFault(t, Legacy, `case $name in iptables-legacy-save) [ -e $bin/fault ] && . $bin/fault;; esac`, func(t *testing.T, c *faulty) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Apply(want)
		c.Apply(want) // the first write may have made the tables themselves
		sound := c.rules()
		for what, how := range map[string]string{
			"all of a table":    "iptables-legacy -w -t filter -F",
			"a rule by another": "iptables-legacy -w -t filter -R " + chainForward + " 1 -j RETURN",
			"a chain, and then another": "echo >>$bin/readings; chain=" + chainForward + "; [ $(wc -l <$bin/readings) -le 4 ] || chain=" + chainNoEndpoints +
				"; iptables-legacy -w -t filter -F $chain",
		} {
			if err := os.WriteFile(filepath.Join(c.bin, "fault"), []byte(how), 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				c.compare(want)
			}
			c.off()
			var told bool
			if c.Node.Do(func() { told = c.backend.disturbed() }); told {
				c.Apply(want)
			}
			if got := c.rules(); got != sound {
				t.Errorf("%s: the rules are\n%s\nwant\n%s", what, without(got, sound), without(sound, got))
			}
			c.Restart()
			c.Apply(want)
		}
	})
}

// TestAnotherReleaseMayPrintRulesDifferently has iptables-legacy-save print a rule in another way than it is written. That
// is no change by others, however often it is read; what they put in place of it is.
func TestAnotherReleaseMayPrintRulesDifferently(t *testing.T) {
	other := `case $name in *-save) /usr/sbin/$name "$@" | sed 's/ --set-xmark 0x0/ --set-xmark 0/'; exit;; esac`
	withFault(t, Legacy, other, func(t *testing.T, c *faulty) {
		want := blackbox.Forwarding(blackbox.Services()...)
		c.Apply(want)
		look := func() { c.compare(want) }
		look()
		look()
		sound, before := c.rules(), c.repairs()
		if look(); c.repairs() != before {
			t.Error("how rules are printed is taken for a change by others, again and again")
		}
		for range 3 {
			c.Run("iptables-legacy", "-t", "nat", "-R", chainClearMasq, "1", "-j", "RETURN")
			before := c.repairs()
			if look(); c.rules() != sound || c.repairs() == before {
				t.Errorf("a rule of others stays:\n%s\nwant\n%s", without(c.rules(), sound), without(sound, c.rules()))
			}
		}
	})
}

// ourSets are the sets that are there whatever Services exist, with what they hold.
func (c *cluster) ourSets() (sets []ipset.Spec, hold map[string][]ipset.Element) {
	c.t.Helper()
	hold = map[string][]ipset.Element{}
	var err error
	c.Node.Do(func() {
		for _, f := range c.backend.families {
			for _, s := range f.sets.order {
				elements, failed := ipset.Elements(s.Name)
				err = errors.Join(err, failed)
				slices.SortFunc(elements, func(a, b ipset.Element) int { return strings.Compare(a.String(), b.String()) })
				sets, hold[s.Name] = append(sets, s.Spec), elements
			}
		}
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return sets, hold
}

// strange is an element of others for a set.
func strange(s ipset.Spec) ipset.Element {
	a := netip.MustParseAddr("192.0.2.99")
	if s.Family == addr.IPv6 {
		a = netip.MustParseAddr("2001:db8:99::1")
	}
	e := ipset.Element{Prefix: addr.HostPrefix(a)}
	switch s.Type {
	case ipset.BitmapPort:
		e = ipset.Element{Port: 7}
	case ipset.HashIPPortIP:
		e.Second = a.Next()
		fallthrough
	case ipset.HashIPPort:
		e.Protocol, e.Port = 6, 7
	}
	return e
}

// TestElementsInPlaceOfOursAreReplaced has a program restore each of our sets as it was at another time, with as
// many elements, in the way of ipset: it fills another set and swaps them.
func TestElementsInPlaceOfOursAreReplaced(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		want.HealthPorts = []uint16{30999}
		want.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("2001:db8:96::/112")}
		want.Refused = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/25"), netip.MustParsePrefix("2001:db8:51::/112")}
		c.Apply(want)
		sets, hold := c.ourSets()
		sound := fmt.Sprint(hold)
		exchange := func(s ipset.Spec) error {
			elements := slices.Clone(hold[s.Name])
			elements[0] = strange(s)
			spare := s
			spare.Name = "TMP"
			return errors.Join(ipset.Create(spare, 0), ipset.Add(spare.Name, elements), ipset.Swap(spare.Name, s.Name), ipset.Destroy(spare.Name))
		}
		state := func() string { _, hold := c.ourSets(); return fmt.Sprint(hold) }
		sets = slices.DeleteFunc(sets, func(s ipset.Spec) bool { return len(hold[s.Name]) == 0 })
		if len(sets) < 16 {
			t.Fatalf("only %d sets hold anything", len(sets))
		}
		c.keep(want)
		const limit = 3 * time.Second // for all of them; a pass finds one
		least := time.Hour
		for range 10 { // the machine does other things too
			before := c.repairs()
			c.peace()
			var err error
			c.Node.Do(func() {
				for _, s := range sets {
					err = errors.Join(err, exchange(s))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if state() == sound {
				continue // repaired before this looked
			}
			least = min(least, c.until(patience, state, sound))
			if got := c.repairs() - before; got < len(sets) {
				t.Errorf("%d sets were changed, and %d counted", len(sets), got)
			}
			if least < limit {
				break
			}
		}
		if least > limit {
			t.Errorf("all sets are as they should be after %s", least)
		}
	})
}

// TestWhatTheGuideSavesLoadsAtBoot loads what a host saved while our rules were there, as at its next boot, before our
// sets are there. A ruleset that names them is refused as a whole, the host's own rules too: the guide has
// our lines left out.
func TestWhatTheGuideSavesLoadsAtBoot(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		for _, f := range addr.Families() {
			of := commands{c.variant, f}
			program, dir := strings.TrimSuffix(of.program(""), "-"), t.TempDir()
			c.Run(program, "-w", "-A", "INPUT", "-p", "tcp", "--dport", "7", "-j", "DROP")
			c.Apply(blackbox.Forwarding(blackbox.Services()...))
			c.Run("sh", "-c", fmt.Sprintf("%s >%s/all && grep -v FAIRLEAD- %[2]s/all >%[2]s/guide", of.program("save"), dir))
			c.Cleanup()
			c.Run(program, "-w", "-F")
			if out := c.Run("sh", "-c", of.program("restore")+" -w <"+dir+"/all 2>&1 || true"); !strings.Contains(out, "doesn't exist") {
				t.Errorf("%s takes a ruleset that names sets which are not there: the guide need not warn of it: %s", of.program("restore"), out)
			}
			c.Run("sh", "-c", of.program("restore")+" -w <"+dir+"/guide")
			if got := c.Run(of.program("save"), "-t", "filter"); !strings.Contains(got, "--dport 7 -j DROP") || strings.Contains(got, ours) {
				t.Errorf("what the guide saves loads as\n%s", got)
			}
			c.Run(program, "-w", "-F")
		}
	})
}

// TestCountersAreNoChange has packets counted by rules of legacy iptables: their tables hold what they held.
func TestCountersAreNoChange(t *testing.T) {
	c := newCluster(t, Legacy)
	c.Apply(blackbox.Forwarding(blackbox.Services()...))
	c.Apply(blackbox.Forwarding(blackbox.Services()...))
	seed := maphash.MakeSeed()
	contents := func() string {
		var all strings.Builder
		c.Node.Do(func() {
			for _, f := range addr.Families() {
				for _, table := range legacyTables {
					content, err := legacyContent(f, table, seed)
					fmt.Fprintln(&all, f, table, content, err)
				}
			}
		})
		return all.String()
	}
	before, counted := contents(), c.Run("iptables-legacy-save", "-c")
	if got, err := c.Client.Ask("tcp", netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(addr.IPv4).VIPs, 1), 80), blackbox.AnswerIn); err != nil {
		t.Fatalf("%v, %v", got, err)
	}
	if c.Run("iptables-legacy-save", "-c") == counted {
		t.Fatal("nothing was counted")
	}
	if after := contents(); after != before || strings.Contains(after, "error") {
		t.Errorf("packets changed\n%s\nto\n%s", before, after)
	}
	c.Run("iptables-legacy", "-t", "nat", "-R", chainClearMasq, "1", "-j", "MARK", "--set-xmark", "0x0/0x8000")
	if contents() == before {
		t.Error("another rule is the same content")
	}
}

// FuzzDigestEntries: whatever the kernel answers, a digest ends, and two of the same are equal.
func FuzzDigestEntries(f *testing.F) {
	f.Add(make([]byte, 400))
	entry := make([]byte, 152)
	entry[90] = 152
	f.Add(entry)
	seed := maphash.MakeSeed()
	f.Fuzz(func(t *testing.T, entries []byte) {
		for _, family := range addr.Families() {
			if digestEntries(family, entries, seed) != digestEntries(family, slices.Clone(entries), seed) {
				t.Error("one answer has two digests")
			}
		}
	})
}
