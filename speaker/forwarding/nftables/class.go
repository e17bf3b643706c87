package nftables

import (
	"fmt"
	"strings"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
)

// group is a set of endpoints to choose from. Its chain is there while a destination
// uses it, so that there are as many chains as there are different numbers of
// endpoints, not as many as there are Services.
type group struct {
	size    uint32 // 0: no endpoint
	local   bool   // the endpoints of this node alone
	silent  bool   // without endpoints: no answer
	seconds uint32 // of session affinity; 0: none
}

// localSlot begins the slots of local groups.
const localSlot = 1 << 29

func (g group) name(w matchKind) string {
	switch {
	case g.size == 0 && g.silent:
		return dropping
	case g.size == 0:
		return rejecting
	}
	name := w.prefix()
	if g.seconds > 0 {
		name += fmt.Sprintf("sticky%ds-", g.seconds)
	}
	if g.local {
		return fmt.Sprintf("%slocal-%d", name, g.size)
	}
	return fmt.Sprintf("%scluster-%d", name, g.size)
}

func (g group) first() uint32 {
	if g.local {
		return localSlot
	}
	return 0
}

func (l *layout) chain(g group, w matchKind) chain {
	c := chain{Name: g.name(w)}
	if g.seconds > 0 {
		c.Rules = l.sticky(g, w)
		return c
	}
	one := func(of uint32) []rule {
		return []rule{{Says: fmt.Sprintf("one of %d", of), Exprs: flat(l.slot(w, of, g.first()), l.lookup(w.of(endpoints), 0), l.dnat(0))}}
	}
	c.Rules = one(g.size)
	if g.size > 1 { // for a packet that saw half of a change, and no endpoint in the slot
		c.Rules = append(c.Rules, one(1)...)
	}
	c.Rules = append(c.Rules, lost())
	return c
}

// noRoom is the rule that counts the packets of clients that the map of session affinity has
// no room for.
const noRoom = "no room to remember the client"

// sticky are the rules of a group with session affinity. The kernel remembers an affinity slot
// for a client. The slot of an endpoint that leaves stays empty.
func (l *layout) sticky(g group, w matchKind) []rule {
	slots := affinityEndpoints
	if g.local {
		slots = localAffinityEndpoints
	}
	visit := flat(protocol(0), loadNote(1), l.lookup(slots, endpointAt))
	leave := flat(clearNote(l.words()+2), l.dnat(endpointAt))
	stay := flat(visit, l.remember(time.Duration(g.seconds)*time.Second), leave)
	return []rule{
		{Says: "note the port", Exprs: flat(l.destination(w), l.lookup(w.of(affinityPorts), 0), storeNote(0))},
		{Says: "note the affinity slot that the client knows", Exprs: flat(l.source(0), loadNote(l.words()), l.lookup(affinity, 0), storeNote(0))},
		{Says: "it is taken: go there", Exprs: stay},
		{Says: "it is empty: forget it", Exprs: l.forget()},
		{Says: fmt.Sprintf("note one of %d", g.size), Exprs: flat(l.slot(w, g.size, g.first()), l.lookup(w.of(affinitySlots), 0), storeNote(0))},
		{Says: "go there", Exprs: stay},
		{Says: noRoom, Exprs: flat(visit, counter(), leave)},
		lost(),
	}
}

// entry is what happens to a packet besides the choice of an endpoint.
type entry uint8

const (
	plain    entry = iota // nothing
	internal              // masquerade unless a pod sends
	masked                // masquerade
	outside               // pods and this node, masqueraded, go to the main group, others to another
)

// class is what happens to packets for a destination.
type class struct {
	entry
	main, others group
	guarded      bool          // the source must be admitted
	lengths      lengths       // of the prefixes that are
	pods         desired.Links // that tell pods, where that matters; none: the addresses
}

// telling begins the names of chains that tell pods from others.
func (c class) telling() string {
	switch {
	case c.pods == desired.Links{}:
		return ""
	case c.pods.Prefix:
		return "links-" + spelled(c.pods.Name) + "-"
	default:
		return "link-" + spelled(c.pods.Name) + "-"
	}
}

// spelled is what begins or is the name of an interface, in the letters that nft reads in names; no interface has a slash in its.
func spelled(link string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if strings.ContainsFunc(link, func(r rune) bool { return !strings.ContainsRune(letters, r) }) {
		return fmt.Sprintf("/%x", link)
	}
	return link
}

type classKey struct {
	class
	matchKind
}

// mostMade is how many classes the chains are remembered of, some KiB for each. A cluster uses a few
// hundred at a time, but a Service that grows and shrinks comes by any number of them.
const mostMade = 1 << 10

// chains are those that a class needs, the first of them first.
func (l *layout) chains(c class, w matchKind) []chain {
	key := classKey{c, w}
	all, made := l.made[key]
	if !made {
		if len(l.made) >= mostMade {
			clear(l.made) // those that are in use are soon made again
		}
		all = l.makeChains(c, w)
		l.made[key] = all
	}
	return all
}

func (l *layout) makeChains(c class, w matchKind) []chain {
	var all []chain
	add := func(g group) string {
		if g.size > 0 {
			all = append(all, l.chain(g, w))
		}
		return g.name(w)
	}
	first := add(c.main)
	begin := func(name string, rules ...rule) {
		first = name
		all = append([]chain{{Name: name, Rules: rules}}, all...)
	}
	if c.entry == outside {
		main, others := first, add(c.others)
		begin(c.telling()+w.prefix()+c.others.name(matchKind(0))+"-or-"+c.main.name(matchKind(0)),
			rule{Says: "pods reach the whole cluster", Exprs: flat(l.ifPod(c.pods), goTo(main))},
			rule{Says: "so does this node", Exprs: flat(fromNode(), goTo(main))},
			rule{Says: "others reach this node", Exprs: goTo(others)})
	}
	if c.guarded {
		begin(c.lengths.guard()+first, l.admit(c.lengths, first)...)
	}
	if len(all) == 0 { // a static chain is all
		all = []chain{{Name: first}}
	}
	if c.linked() {
		all = append(all, l.bySourceLink(c))
	}
	return all
}
