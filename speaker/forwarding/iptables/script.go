package iptables

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// nftPart is how many chains one transaction of nf_tables should mention. Its
// iptables-restore looks each of them up in a list at each rule, so that the time grows by
// the square, and the kernel walks all chains that there are at each commit: with many
// small transactions that is what takes longest. Legacy iptables writes the whole table in
// every transaction and is better off with one.
const nftPart = 400

// script is what iptables-restore --noflush reads for one table.
type script struct {
	table        string
	text         strings.Builder
	open         bool
	transactions int
}

func (s *script) begin() {
	if !s.open {
		s.open = true
		fmt.Fprintf(&s.text, "*%s\n", s.table)
	}
}

// chains creates chains, or empties them.
func (s *script) chains(names []string) {
	s.begin()
	for _, name := range names {
		fmt.Fprintf(&s.text, ":%s - [0:0]\n", name)
	}
}

// rules appends the rules of a chain.
func (s *script) rules(name string, c chain) {
	s.begin()
	for rule := range strings.Lines(c.text) {
		for _, part := range []string{"-A ", name, " ", rule} {
			s.text.WriteString(part)
		}
	}
}

// jumps deletes some rules of others' chains and puts some at their beginning.
func (s *script) jumps(gone, come []jump) {
	s.begin()
	for _, j := range gone {
		fmt.Fprintf(&s.text, "-D %s %s\n", j.from, j.rule)
	}
	for _, j := range come {
		fmt.Fprintf(&s.text, "-I %s 1 %s\n", j.from, j.rule)
	}
}

// drop removes chains that are empty and that no rule leads to.
func (s *script) drop(names []string) {
	s.begin()
	for _, name := range names {
		fmt.Fprintf(&s.text, "-X %s\n", name)
	}
}

// clear empties and removes chains that only they themselves lead to, in transactions
// of their own.
func (s *script) clear(names []string, part int) {
	names = slices.Clone(names)
	slices.Reverse(names)
	if part == 0 {
		part = max(len(names), 1)
	}
	for some := range slices.Chunk(names, part) {
		s.chains(some)
		s.commit()
	}
	for some := range slices.Chunk(names, part) {
		s.drop(some)
		s.commit()
	}
}

func (s *script) commit() {
	s.begin()
	s.open = false
	s.text.WriteString("COMMIT\n")
	s.transactions++
}

// removal renders what removes everything of ours; "" if there is nothing.
func (s saved) removal(table string, part int) string {
	if len(s.chains)+len(s.jumps) == 0 {
		return ""
	}
	out := script{table: table}
	var jumps []jump
	for j, n := range s.jumps {
		jumps = append(jumps, slices.Repeat([]jump{j}, n)...)
	}
	if len(jumps) > 0 {
		out.jumps(jumps, nil)
		out.commit()
	}
	out.clear(slices.Sorted(maps.Keys(s.chains)), part)
	return out.text.String()
}
