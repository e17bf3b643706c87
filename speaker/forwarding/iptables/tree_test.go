package iptables

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/view"
)

// chains is what a tree publishes.
type chains map[string][]string

func (c chains) publish(t *tree) {
	t.publish(func(name string, rules []string) { c[name] = rules }, func(name string) { delete(c, name) })
}

var rulePattern = regexp.MustCompile(`^(?:-d (\S+) ?)?(?:-p (\S+) ?)?(?:-m \S+ --dport (\S+) ?)?(?:-m comment --comment \S+ )?(-g|-j|-m maybe -j) (\S+)$`)

// find walks the chains as the kernel would. It returns the target and how many
// rules were looked at.
func (c chains) find(t *rapid.T, root string, d destination) (to string, looked int) {
	chain := root
walk:
	for {
		rules, ok := c[chain]
		if !ok {
			return chain, looked
		}
		for _, rule := range rules {
			looked++
			m := rulePattern.FindStringSubmatch(rule)
			if m == nil {
				t.Fatalf("cannot read rule %q", rule)
			}
			if m[1] != "" && !netip.MustParsePrefix(m[1]).Contains(d.addr) ||
				m[2] != "" && m[2] != strings.ToLower(string(d.protocol)) {
				continue
			}
			if m[3] != "" {
				var first, last uint16
				if n, _ := fmt.Sscanf(m[3], "%d:%d", &first, &last); n == 1 {
					last = first
				}
				if d.port < first || d.port > last {
					continue
				}
			}
			switch m[4] {
			case "-j":
				return m[5], looked
			case "-g":
				chain = m[5]
				continue walk
			}
		}
		return "", looked
	}
}

func drawDestination(bits int) *rapid.Generator[destination] {
	return rapid.Custom(func(t *rapid.T) destination {
		d := destination{
			protocol: rapid.SampledFrom([]view.Protocol{view.TCP, view.UDP}).Draw(t, "protocol"),
			port:     rapid.Uint16Range(1, 400).Draw(t, "port"),
		}
		if bits > 0 {
			b := make([]byte, bits/8)
			// Few values in few places: many common prefixes and equal addresses.
			for _, i := range []int{0, len(b)/2 - 1, len(b) - 1} {
				b[i] = rapid.SampledFrom([]byte{0, 1, 2, 10, 128, 255}).Draw(t, "byte")
			}
			d.addr, _ = netip.AddrFromSlice(b)
		}
		return d
	})
}

// drawTarget is a chain, or rules the last of which has the name that a chain would have.
func drawTarget(t *rapid.T, step, leaf int) target {
	to := target{chain: fmt.Sprint("target", step)}
	if n := rapid.IntRange(0, leaf).Draw(t, "verdicts"); n > 0 {
		to.verdicts = strings.Repeat("-m maybe -j another\n", n-1) + "-j " + to.chain
	}
	return to
}

// TestTree holds, over any history of changes, that a tree leads to each
// destination and to no other, looks at few rules on the way, renders the same
// as one made at once, and keeps names that the kernel takes.
func TestTree(t *testing.T) {
	for _, bits := range []int{0, 32, 128} {
		t.Run(fmt.Sprint(bits), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := shape{root: "ROOT", prefix: ours + "S-", bits: bits, leaf: rapid.SampledFrom([]int{16, 64}).Draw(t, "leaf")}
				grown, published, want := newTree(s), chains{}, map[destination]target{}
				for step := range rapid.IntRange(1, 8).Draw(t, "steps") {
					for _, d := range rapid.SliceOfN(drawDestination(bits), 0, 60).Draw(t, "set") {
						want[d] = drawTarget(t, step, s.leaf)
						grown.set(d, want[d])
					}
					for _, d := range slices.SortedFunc(maps.Keys(want), byText) {
						if rapid.IntRange(0, 2).Draw(t, "remove") == 0 {
							delete(want, d)
							grown.unset(d)
						}
					}
					published.publish(grown)
				}
				made, fresh := newTree(s), chains{}
				for d, to := range want {
					made.set(d, to)
				}
				fresh.publish(made)
				if !maps.EqualFunc(published, fresh, slices.Equal) {
					t.Fatalf("grown:\n%v\nmade at once:\n%v", published, fresh)
				}
				for name := range fresh {
					if len(name) > maxChainName {
						t.Fatalf("chain name %q has %d characters", name, len(name))
					}
				}
				for d, to := range want {
					got, looked := fresh.find(t, s.root, d)
					if got != to.chain {
						t.Fatalf("%v leads to %q, want %q", d, got, to.chain)
					}
					if most := max(s.leaf, 1<<stride) * (s.depth() + 1); looked > most {
						t.Fatalf("%v took %d rules, want at most %d", d, looked, most)
					}
				}
				for _, d := range rapid.SliceOfN(drawDestination(bits), 0, 20).Draw(t, "others") {
					if got, _ := fresh.find(t, s.root, d); got != want[d].chain {
						t.Fatalf("%v leads to %q, want %q", d, got, want[d].chain)
					}
				}
			})
		})
	}
}

func byText(a, b destination) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }

// TestTreeChangeIsLocal holds that one more destination among many rewrites only
// the few chains on its path.
func TestTreeChangeIsLocal(t *testing.T) {
	for _, prefix := range []string{"10.96.0.0", "fd00:96::"} {
		base := netip.MustParseAddr(prefix)
		tr := newTree(shape{root: "ROOT", prefix: ours + "S-", bits: base.BitLen(), leaf: 16})
		at := func(n int) destination {
			b := base.AsSlice()
			b[len(b)-2], b[len(b)-1] = byte(n>>8), byte(n)
			a, _ := netip.AddrFromSlice(b)
			return destination{a, view.TCP, 80}
		}
		for n := range 10000 {
			tr.set(at(n), target{chain: "X"})
		}
		all := chains{}
		all.publish(tr)
		tr.set(at(10001), target{chain: "X"})
		changed := 0
		tr.publish(func(string, []string) { changed++ }, func(string) { changed++ })
		if changed == 0 || changed > 16 {
			t.Errorf("%s: %d of %d chains changed, want a handful", prefix, changed, len(all))
		}
	}
}
