package iptables

import (
	"fmt"
	"slices"
	"strings"
)

// script is one transaction on a table, as iptables-restore --noflush reads it.
type script struct{ text strings.Builder }

func newScript(table string) *script {
	s := &script{}
	fmt.Fprintf(&s.text, "*%s\n", table)
	return s
}

// chains creates chains, or empties them.
func (s *script) chains(names []string) {
	for _, name := range names {
		fmt.Fprintf(&s.text, ":%s - [0:0]\n", name)
	}
}

func (s *script) rules(name, rules string) {
	for rule := range strings.Lines(rules) {
		for _, part := range []string{"-A ", name, " ", rule} {
			s.text.WriteString(part)
		}
	}
}

// jumps deletes rules of others' chains that are too many and puts those that lack at their beginning, but behind policies.
func (s *script) jumps(t *table) {
	for _, j := range t.stray {
		fmt.Fprintf(&s.text, "-D %s %s\n", j.from, j.rule)
	}
	for _, j := range t.absent {
		before, _ := t.behind(j.from)
		fmt.Fprintf(&s.text, "-I %s %d %s\n", j.from, before+1, j.rule)
	}
}

// drop removes chains that are empty and that no rule leads to.
func (s *script) drop(names []string) {
	for _, name := range names {
		fmt.Fprintf(&s.text, "-X %s\n", name)
	}
}

func (s *script) commit() string {
	s.text.WriteString("COMMIT\n")
	return s.text.String()
}

// script renders what turns what the kernel has into what is wanted.
func (t *table) script() string {
	write, remove := t.differences()
	s := newScript(t.name)
	s.chains(slices.Concat(write, remove))
	for _, name := range write {
		s.rules(name, t.want[name].text())
	}
	s.jumps(t)
	s.drop(remove)
	return s.commit()
}
