package iptables

import (
	"slices"
	"strings"
)

// policed are the chains of the filter table in which network policies are enforced: what these programs call the chains to
// which they lead begins with one of policers.
var (
	policed  = []string{"INPUT", "FORWARD", "OUTPUT"}
	policers = []string{"KUBE-ROUTER-", "cali-"}
)

// places are where network policies are enforced in built-in chains of others' and our rules. Each program keeps its rule at the
// front, but looks after it now and then only: ours come behind it, as they admit what it may refuse.
type places map[string]*place

type place struct {
	others int // rules of others that the chain has
	after  int // of these are before ours
	handle uint64
}

// pass counts a rule of others, which leads to a chain if target names one.
func (p *places) pass(from, target string, handle uint64) {
	if !slices.Contains(policed, from) {
		return
	}
	if *p == nil {
		*p = places{}
	}
	at := (*p)[from]
	if at == nil {
		at = &place{}
		(*p)[from] = at
	}
	at.others++
	if slices.ContainsFunc(policers, func(prefix string) bool { return strings.HasPrefix(target, prefix) }) {
		at.after, at.handle = at.others, handle
	}
}

// behind is where a jump of the table comes: behind how many rules of others, of which the last has that handle.
func (t *table) behind(from string) (rules int, handle uint64) {
	if at := t.places[from]; at != nil && t.name == "filter" {
		return at.after, at.handle
	}
	return 0, 0
}
