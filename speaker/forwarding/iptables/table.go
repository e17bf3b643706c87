package iptables

import (
	"hash/fnv"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
)

// table holds what one table of one family must be, what the kernel is known to
// have, and which chains may differ.
type table struct {
	family addr.Family
	name   string
	jumps  []jump
	want   map[string]chain
	kernel map[string]chain
	empty  map[string]struct{} // chains that the kernel has and that others emptied
	absent []jump              // jumps that the kernel lacks
	stray  []jump              // into chains of ours, which are not wanted
	dirty  map[string]struct{}
	sum    uint64 // of all wanted chains but the stamp
	rules  int    // in all of these
}

// chain is the rules of one chain, each on a line of its own. Of a chain that is read
// back only the number is known.
type chain struct {
	text  string
	rules int
}

// foreign stands for a chain of ours whose rules are not what we wrote.
var foreign = chain{rules: -1}

func newTable(family addr.Family, name string, jumps []jump) *table {
	return &table{
		family: family, name: name, jumps: jumps, absent: jumps,
		want: map[string]chain{}, kernel: map[string]chain{}, dirty: map[string]struct{}{}, empty: map[string]struct{}{},
	}
}

// set makes rules the wanted content of a chain.
func (t *table) set(name string, rules []string) {
	t.replace(name, newChain(rules...))
}

func newChain(rules ...string) chain {
	return chain{strings.Join(append(slices.Clip(rules), ""), "\n"), len(rules)} // not a byte too many: it stays
}

func (t *table) replace(name string, c chain) {
	old, had := t.want[name]
	if had && old == c {
		return
	}
	if had {
		t.sum ^= old.sum(name)
	}
	t.want[name] = c
	t.sum ^= c.sum(name)
	t.rules += c.rules - old.rules
	t.dirty[name] = struct{}{}
}

// drop makes a chain unwanted.
func (t *table) drop(name string) {
	if old, had := t.want[name]; had {
		t.sum ^= old.sum(name)
		t.rules -= old.rules
		delete(t.want, name)
		t.dirty[name] = struct{}{}
	}
}

func (c chain) sum(name string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name+"\n"+c.text) // a hash never errs
	return h.Sum64()
}

// stamp is the chain that tells which rules all others hold.
func (t *table) stamp() chain { return newChain(stampRule(t.family, t.sum)) }

// differences are the chains to write and to remove.
func (t *table) differences() (write, remove []string) {
	for name := range t.dirty {
		c, wanted := t.want[name]
		have, exists := t.kernel[name]
		switch {
		case wanted && (!exists || have != c):
			write = append(write, name)
		case !wanted && exists:
			remove = append(remove, name)
		}
	}
	slices.Sort(write)
	slices.Sort(remove)
	return write, remove
}

// script renders what turns what the kernel has into what is wanted, for
// iptables-restore --noflush, and says of how many transactions it is: none if nothing
// differs. They are several if more chains than a part may have are concerned (0: any
// number).
func (t *table) script(part int) (text string, transactions int) {
	write, remove := t.differences()
	if len(write)+len(remove)+len(t.absent)+len(t.stray) == 0 && t.kernel[chainStamp] == t.stamp() {
		return "", 0
	}
	s := script{table: t.name}
	s.text.Grow(t.length(write))
	if part == 0 || len(write)+len(remove) <= part {
		s.chains(slices.Concat(write, remove, []string{chainStamp}))
		for _, name := range write {
			s.rules(name, t.want[name])
		}
		s.rules(chainStamp, t.stamp())
		s.jumps(t.stray, t.absent)
		s.drop(remove)
		s.commit()
		return s.text.String(), s.transactions
	}
	s.chains([]string{chainStamp}) // what is half done must not look whole
	s.commit()
	// A chain comes after those that it leads to.
	for names := range t.parts(t.bottomUp(write), part) {
		slices.Sort(names)
		slices.Reverse(names)
		s.chains(t.full(names))
		for _, name := range names {
			s.rules(name, t.want[name])
		}
		s.commit()
	}
	s.jumps(t.stray, t.absent)
	s.commit()
	s.clear(remove, part)
	s.chains([]string{chainStamp})
	s.rules(chainStamp, t.stamp())
	s.commit()
	return s.text.String(), s.transactions
}

// parts cuts chains into runs that mention no more chains than that, themselves and those
// that they lead to, or a few more.
func (t *table) parts(names []string, part int) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		first, mentioned := 0, map[string]struct{}{}
		for i, name := range names {
			if len(mentioned) >= part {
				if !yield(names[first:i]) {
					return
				}
				first = i
				clear(mentioned)
			}
			mentioned[name] = struct{}{}
			t.want[name].leadsTo(func(to string) { mentioned[to] = struct{}{} })
		}
		if first < len(names) {
			yield(names[first:])
		}
	}
}

// full are the chains that must be made or emptied before they are written. After a flush
// most are there and empty, and to say so for each takes a fifth of the time of a repair.
func (t *table) full(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, empty := t.empty[name]
		return empty
	})
}

// length is about how much text it takes to write chains, a little too much.
func (t *table) length(names []string) int {
	const more = len("-A :  - [0:0]\n")
	n := 0
	for _, name := range names {
		c := t.want[name]
		n += len(c.text) + (c.rules+1)*(len(name)+more)
	}
	return n
}

// bottomUp sorts wanted chains such that each comes after those that it leads to.
func (t *table) bottomUp(names []string) []string {
	sorted := make([]string, 0, len(names))
	pending := make(map[string]bool, len(names))
	for _, name := range names {
		pending[name] = true
	}
	var visit func(name string)
	visit = func(name string) {
		if !pending[name] {
			return
		}
		pending[name] = false
		t.want[name].leadsTo(visit)
		sorted = append(sorted, name)
	}
	for _, name := range names {
		visit(name)
	}
	return sorted
}

// leadsTo calls f for each rule that leads to another chain of ours.
func (c chain) leadsTo(f func(name string)) {
	for line := range strings.Lines(c.text) {
		line = strings.TrimSuffix(line, "\n")
		i := strings.LastIndexByte(line, ' ')
		how := line[strings.LastIndexByte(line[:i], ' ')+1 : i]
		if to := line[i+1:]; strings.HasPrefix(to, ours) && (how == "-g" || how == "-j") {
			f(to)
		}
	}
}

// expected is what each chain counts in the kernel if all is as it was written: its
// rules, or all that uses it, which are its rules and those that lead to it.
func (t *table) expected(uses bool) map[string]int {
	counts := make(map[string]int, len(t.kernel))
	for name, c := range t.kernel {
		counts[name] += c.rules
		if uses {
			c.leadsTo(func(to string) { counts[to]++ })
		}
	}
	if uses {
		for _, j := range t.jumps {
			_, to, _ := strings.Cut(j.rule, " ")
			counts[to]++
		}
	}
	return counts
}

// lines is how many the table has in iptables-save, as far as it is ours.
func (t *table) lines() int { return len(t.want) + t.rules }

// probe renders a transaction that changes nothing.
func (t *table) probe() string {
	s := script{table: t.name}
	s.chains([]string{chainStamp})
	s.rules(chainStamp, t.stamp())
	s.commit()
	return s.text.String()
}

// forget has the kernel read anew.
func (t *table) forget() {
	clear(t.kernel)
	clear(t.empty)
	for name := range t.want {
		t.dirty[name] = struct{}{}
	}
}

// unsure has all chains that a script writes written again, whatever became of it.
func (t *table) unsure() {
	write, remove := t.differences()
	t.doubt(slices.Concat(write, remove, []string{chainStamp}))
}

// took notes that the kernel has some chains as they are wanted.
func (t *table) took(names []string) {
	for _, name := range names {
		t.kernel[name] = t.want[name]
		delete(t.dirty, name)
		delete(t.empty, name)
	}
}

// doubt has chains written again whatever the kernel has of them.
func (t *table) doubt(names []string) {
	for _, name := range names {
		t.kernel[name] = foreign
		delete(t.empty, name)
	}
}

// written notes that the kernel took the script. It returns by how many entries
// that made the table longer, as the kernel of legacy iptables counts them.
func (t *table) written() (longer int) {
	for name := range t.dirty {
		longer -= t.kernel[name].entries()
		if c, wanted := t.want[name]; wanted {
			t.kernel[name] = c
		} else {
			delete(t.kernel, name)
		}
		longer += t.kernel[name].entries()
	}
	longer += len(t.absent) - len(t.stray) - t.kernel[chainStamp].entries()
	t.kernel[chainStamp] = t.stamp()
	longer += t.kernel[chainStamp].entries()
	t.dirty = map[string]struct{}{} // cleared, it would keep the room that the first fill took
	t.absent, t.stray = nil, nil
	t.empty = map[string]struct{}{}
	return longer
}

// entries counts the rules of a chain, its head and its end; none if it is not there.
func (c chain) entries() int {
	if c == (chain{}) {
		return 0
	}
	return c.rules + 2
}

// compare takes over what the kernel says. It returns the names of chains that
// somebody else emptied, changed or removed, and of jumps that are gone, as told
// by the number of rules in them. After a restart, when nothing is known yet,
// the stamp tells whether the rules are those wanted now.
func (t *table) compare(s saved) (damaged []string) {
	fresh := len(t.kernel) == 0
	if fresh && s.stamp != 0 && s.stamp == t.sum {
		t.kernel = maps.Clone(t.want)
		t.kernel[chainStamp] = t.stamp()
	}
	another := t.anotherWrote(s)
	expected := t.expected(s.uses)
	clear(t.empty)
	for name, n := range s.chains {
		if n == 0 {
			t.empty[name] = struct{}{}
		}
		if known, ok := t.kernel[name]; !ok || known == foreign || expected[name] != n {
			t.kernel[name] = foreign
			t.mark(name)
			damaged = append(damaged, name)
		}
	}
	for name := range t.kernel {
		if _, exists := s.chains[name]; !exists {
			delete(t.kernel, name)
			t.mark(name)
			damaged = append(damaged, name)
		}
	}
	t.absent, t.stray = nil, nil
	for _, j := range t.jumps {
		if s.jumps[j] != 1 {
			t.absent = append(t.absent, j)
			damaged = append(damaged, j.from+" "+j.rule)
		}
	}
	for j, n := range s.jumps {
		if n == 1 && slices.Contains(t.jumps, j) {
			continue
		}
		for range n {
			t.stray = append(t.stray, j)
		}
		damaged = append(damaged, j.from+" "+j.rule)
	}
	if fresh {
		return nil
	}
	if another {
		for name := range t.kernel {
			t.kernel[name] = foreign
			t.mark(name)
		}
		damaged = append(damaged, chainStamp)
	}
	slices.Sort(damaged)
	return slices.Compact(damaged)
}

// anotherWrote tells whether there is a stamp that is not the one that we left: another speaker has
// written. Its chains have our names, and the numbers of their rules may be ours, too.
func (t *table) anotherWrote(s saved) bool {
	left, there := t.kernel[chainStamp]
	return s.stamp != 0 && there && left != foreign && left != newChain(stampRule(t.family, s.stamp))
}

// mark has the next script look at a chain. The stamp is in every script.
func (t *table) mark(name string) {
	if name != chainStamp {
		t.dirty[name] = struct{}{}
	}
}
