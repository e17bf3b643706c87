package iptables

import (
	"hash/fnv"
	"io"
	"slices"
	"strings"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conflicts"
)

// table is one table of one family: the wanted chains, and what the kernel is known to hold.
type table struct {
	name   string
	jumps  []jump // from built-in chains into ours, one each
	want   map[string]chain
	kernel map[string]content
	handle uint64 // of the table in nf_tables when all of it was last read
	absent []jump // wanted jumps that the kernel lacks
	stray  []jump // other jumps into our chains
	places        // of policies in the chains that jumps are from
	unmade bool   // nf_tables lacks the table, or chains of it that lead to ours
	dirty  map[string]struct{}
	rules  int    // in all wanted chains
	mirror *table // that is to have the same chains; nil: none
	// another speaker was found to have written chains when they were last compared.
	another bool
	// odd are contents that differed from what was written, until a chain is found as written. Those that are
	// the same right after another write are prints: how this release of iptables-legacy-save prints our rules.
	odd, prints map[string]printed
	again       bool // one of the odd was the same when they were last compared
}

// chain is the wanted rules of a chain.
type chain struct {
	brief string // what they are written as, in which each of the phrases is a byte
	content
}

// text is the rules, each on a line, as iptables-save prints them.
func (c chain) text() string { return lengthen.Replace(c.brief) }

// phrases are most of what rules are written as, which is kept of tens of thousands of them. The bytes are in no rule: comments
// are quoted.
var phrases = []string{
	"-p tcp", "\x01", "-p udp", "\x02", " -m tcp --dport ", "\x03", " -m udp --dport ", "\x04", " -g " + ours, "\x05",
	" -m statistic --mode random --probability ", "\x06", " -j DNAT --to-destination ", "\x07", "-m comment --comment ", "\x08",
}

// These put bytes in place of phrases, and phrases in place of bytes.
var (
	shorten  = strings.NewReplacer(phrases...)
	lengthen = strings.NewReplacer(reversed(phrases)...)
)

func reversed(all []string) []string {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}

// content identifies what is in a chain. Rules that others wrote give another sum.
type content struct {
	sum   uint64
	rules int
}

// printed is what was written into a chain, and what a program said of it.
type printed struct{ written, read content }

// foreign is the content of a chain with rules that we did not write.
var foreign = content{rules: -1}

func newTable(name string, jumps []jump) *table {
	return &table{
		name: name, jumps: jumps, absent: jumps,
		want: map[string]chain{}, kernel: map[string]content{}, dirty: map[string]struct{}{},
		odd: map[string]printed{}, prints: map[string]printed{},
	}
}

func newChain(name string, rules ...string) chain {
	text := strings.Join(append(slices.Clip(rules), ""), "\n")
	return chain{shorten.Replace(text), contentOf(name, text, len(rules))}
}

// contentOf is the content of a chain that has these lines.
func contentOf(name, text string, rules int) content {
	if rules == 0 {
		return content{}
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, name+"\n"+text) // a hash never fails
	return content{h.Sum64(), rules}
}

func (t *table) set(name string, rules []string) {
	c, old := newChain(name, rules...), t.want[name]
	if _, had := t.want[name]; had && old == c {
		return
	}
	t.want[name] = c
	t.rules += c.rules - old.rules
	t.touch(name)
}

func (t *table) drop(name string) {
	if old, had := t.want[name]; had {
		t.rules -= old.rules
		delete(t.want, name)
		t.touch(name)
	}
}

// touch has a chain looked at before the next write, in the mirror, too.
func (t *table) touch(name string) {
	t.dirty[name] = struct{}{}
	if t.mirror != nil {
		t.mirror.dirty[name] = struct{}{}
	}
}

// differences are the chains to write and to remove.
func (t *table) differences() (write, remove []string) {
	for name := range t.dirty {
		c, wanted := t.want[name]
		have, exists := t.kernel[name]
		switch {
		case wanted && (!exists || have != c.content):
			write = append(write, name)
		case !wanted && exists:
			remove = append(remove, name)
		}
	}
	slices.Sort(write)
	slices.Sort(remove)
	return write, remove
}

// asWanted tells whether the kernel holds what is wanted, as far as is known.
func (t *table) asWanted() bool {
	write, remove := t.differences()
	return len(write)+len(remove)+len(t.absent)+len(t.stray) == 0
}

// uses is how often nf_tables counts each chain as used: by its rules and by those that lead to it.
func (t *table) uses() map[string]int {
	uses := make(map[string]int, len(t.want))
	for name, c := range t.want {
		uses[name] += c.rules
		for line := range strings.Lines(c.text()) {
			if to := leadsTo(strings.TrimSuffix(line, "\n")); to != "" {
				uses[to]++
			}
		}
	}
	for _, j := range t.jumps {
		uses[leadsTo(j.rule)]++
	}
	return uses
}

// leadsTo is the chain of ours to which a rule leads, if any.
func leadsTo(rule string) string {
	i := max(strings.LastIndexByte(rule, ' '), 0)
	condition, to := rule[:i], strings.TrimPrefix(rule[i:], " ")
	if !strings.HasPrefix(to, ours) || !strings.HasSuffix(condition, "-j") && !strings.HasSuffix(condition, "-g") ||
		strings.HasSuffix(to, `"`) { // the end of a comment
		return ""
	}
	return to
}

// lines is how many lines of iptables-save the table takes, as far as it is ours.
func (t *table) lines() int { return len(t.want) + t.rules }

// forget has the kernel read anew.
func (t *table) forget() {
	clear(t.kernel)
	for name := range t.want {
		t.dirty[name] = struct{}{}
	}
}

// written notes that the kernel took all differences. It returns by how many entries the table got
// longer, as the kernel of legacy iptables counts them.
func (t *table) written() (longer int) {
	for name := range t.dirty {
		old, had := t.kernel[name]
		longer -= old.entries(had)
		c, wanted := t.want[name]
		longer += c.entries(wanted)
		if wanted {
			t.kernel[name] = c.content
		} else {
			delete(t.kernel, name)
		}
	}
	longer += len(t.absent) - len(t.stray)
	t.dirty = map[string]struct{}{} // cleared, it would keep the room that the first fill took
	t.absent, t.stray, t.unmade = nil, nil, false
	return longer
}

// entries counts the rules of a chain, its head and its end; none if it is not there.
func (c content) entries(exists bool) int {
	if !exists {
		return 0
	}
	return c.rules + 2
}

// compare takes over what the kernel holds. It returns the names of chains that others changed,
// emptied or removed since they were written, and the jumps that are gone or too many. If it is read back, nothing
// but the write before lies between, as far as the kernel tells.
func (t *table) compare(s saved, readBack bool) (damaged []string) {
	fresh := len(t.kernel) == 0
	t.another, t.again = false, false
	for name, got := range s.chains {
		known, ours := t.kernel[name]
		if ours && got != known {
			is := printed{known, got}
			again := t.odd[name] == is && got.rules == known.rules
			if again && readBack {
				t.prints[name] = is
			}
			if t.prints[name] == is {
				continue
			}
			t.again, t.odd[name] = t.again || again, is
			t.another = t.another || got.sum != 0
		} else if ours {
			delete(t.odd, name)
			continue
		}
		damaged = append(damaged, name)
		t.kernel[name] = got
		t.dirty[name] = struct{}{}
	}
	for name := range t.kernel {
		if _, exists := s.chains[name]; !exists {
			delete(t.kernel, name)
			t.dirty[name] = struct{}{}
			damaged = append(damaged, name)
		}
	}
	t.absent, t.stray, t.unmade, t.places = nil, nil, false, s.places
	for _, j := range t.jumps {
		t.unmade = t.unmade || s.base != nil && !s.base[j.from]
		if !slices.ContainsFunc(s.jumps, j.same) {
			t.absent = append(t.absent, j)
			damaged = append(damaged, j.from+" "+j.rule)
		}
	}
	for i, j := range s.jumps {
		if slices.ContainsFunc(t.jumps, j.same) && !slices.ContainsFunc(s.jumps[:i], j.same) {
			continue
		}
		t.stray = append(t.stray, j)
		damaged = append(damaged, j.from+" "+j.rule)
	}
	if fresh {
		return nil
	}
	slices.Sort(damaged)
	return slices.Compact(damaged)
}

// ruleset is one table and the two trees in it.
type ruleset struct {
	table     *table
	services  *dispatcher
	nodePorts *dispatcher
}

func newRuleset(s style, name string, jumps []jump) ruleset {
	return ruleset{
		table:     newTable(name, jumps),
		services:  newDispatcher(shape{root: chainServices, prefix: ours + "IP-", bits: s.family.Bits(), leaf: s.leaf()}),
		nodePorts: newDispatcher(shape{root: chainNodePorts, prefix: ours + "NP-", leaf: s.leaf()}),
	}
}

// replace takes out what a port had and puts in what it gets.
func (r ruleset) replace(key desired.PortKey, from, to part) {
	for chain := range from.chains {
		if _, stays := to.chains[chain]; !stays {
			r.table.drop(chain)
		}
	}
	for chain, rules := range to.chains {
		r.table.set(chain, rules)
	}
	r.services.replace(key, from.services, to.services)
	r.nodePorts.replace(key, from.nodePorts, to.nodePorts)
}

// publish brings the table up to date with the trees.
func (r ruleset) publish() {
	r.services.tree.publish(r.table.set, r.table.drop)
	r.nodePorts.tree.publish(r.table.set, r.table.drop)
}

// dispatcher is a tree whose destinations several ports may claim.
type dispatcher struct {
	tree       *tree
	precedence conflicts.Destinations[destination, target]
}

func newDispatcher(s shape) *dispatcher { return &dispatcher{tree: newTree(s)} }

func (d *dispatcher) replace(key desired.PortKey, from, to map[destination]target) {
	for at := range from {
		if _, stays := to[at]; !stays {
			d.precedence.Release(at, key)
			d.update(at)
		}
	}
	for at, where := range to {
		if from[at] != where {
			d.precedence.Set(at, conflicts.Candidate[target]{Key: key, Rank: where.rank, Value: where})
			d.update(at)
		}
	}
}

func (d *dispatcher) update(at destination) {
	if holder, ok := d.precedence.Winner(at); ok {
		d.tree.set(at, holder.Value)
	} else {
		d.tree.unset(at)
	}
}
