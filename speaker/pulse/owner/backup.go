package owner

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

const (
	// skewTime is how much later than the candidate before it each of those that stand by asks (as Skew_Time of
	// VRRP, RFC 9568, does for backup routers): the answer to the first is heard by all.
	skewTime = 40 * time.Millisecond
	// activeDown is for how long an answer is awaited, and claimTime how much longer for each address that is asked
	// for at the same time.
	activeDown = 250 * time.Millisecond
	claimTime  = 500 * time.Microsecond
	// newFor is how long an address that is new is left alone: it comes to the nodes at different moments, and their
	// agents program it first.
	newFor = 5 * time.Second
	// hearAgain is how often it is looked whether all nodes are heard by now.
	hearAgain = 50 * time.Millisecond
)

// backups are the addresses in buckets in which the tables of nodes differ, and for which this node stands by.
// There, each node may take another one for the owner, and none would answer. So the backup asks in
// hellos until a node says that it answers, and stands by for that one, whichever its own table names; once that one
// is gone, it asks anew. If no node says so, it adopts the address.
//
// Machine calls due when next says so.
type backups struct {
	of  map[netip.Addr]*backup
	new map[netip.Addr]time.Time // the addresses that are new, and since when
}

// backup is one address.
type backup struct {
	standby
	active string    // the node that said that it answers; empty: none did
	due    time.Time // when to ask or, once that was done, to adopt
	asked  bool
}

// update takes in for which addresses this node stands by, which of them it answers for meanwhile, and what other
// nodes say of them.
func (b *backups) update(now time.Time, self string, standing map[netip.Addr]standby, answered func(netip.Addr) bool, v hello.View) {
	maps.DeleteFunc(b.new, func(_ netip.Addr, since time.Time) bool { return !now.Before(since.Add(newFor)) })
	differs := func(a netip.Addr) bool { return v.Differ(desired.Bucket(a)) }
	maps.DeleteFunc(b.of, func(a netip.Addr, _ *backup) bool { return standing[a].owner == "" || !differs(a) })
	if v.Differs == 0 {
		return
	}
	if b.of == nil {
		b.of = map[netip.Addr]*backup{}
	}
	said := stancesOf(self, v)
	for a, place := range standing {
		if place.owner == "" || !differs(a) {
			continue
		}
		w := b.of[a]
		if w == nil {
			w = &backup{}
			b.of[a] = w
		}
		before := *w
		w.standby = place
		switch stance, node := said.active(a, w.active); {
		case answered(a):
			w.active = self
		case stance != 0:
			w.active = node
		case w.active == self || said[w.active][a] != 0 || !v.CanServe(w.active, a):
			w.active = ""
		}
		if w.active != "" {
			w.asked = false
		} else if before.active != "" || before.owner != place.owner || before.due.IsZero() {
			w.asked, w.due = false, now.Add(time.Duration(place.after)*skewTime)
			if since, is := b.new[a]; is {
				w.due = w.due.Add(since.Add(newFor).Sub(now))
			}
		}
	}
}

// table takes in a table, and the one before it; nil: none.
func (b *backups) table(now time.Time, before, t *api.Table) {
	if before == nil {
		return
	}
	for a := range t.Claims {
		_, claimed := before.Claims[a]
		if _, elsewhere := slices.BinarySearchFunc(before.Elsewhere, a, netip.Addr.Compare); claimed || elsewhere {
			continue
		}
		if b.new == nil {
			b.new = map[netip.Addr]time.Time{}
		}
		b.new[a] = now
	}
}

// stances are what other nodes say of addresses, by node.
type stances map[string]map[netip.Addr]hello.Stance

func stancesOf(self string, v hello.View) stances {
	said := stances{}
	for node, m := range v.Alive {
		if node == self || len(m.Claims) == 0 {
			continue
		}
		said[node] = make(map[netip.Addr]hello.Stance, len(m.Claims))
		for _, claim := range m.Claims {
			said[node][claim.Address] = claim.Stance
		}
	}
	return said
}

// active is the node that answers for an address, or its kernel, by its own word: rather one that will go on than one
// that would hand it over, and rather the one that did until now. Without such a word the stance is 0.
func (s stances) active(a netip.Addr, now string) (best hello.Stance, node string) {
	rank := func(stance hello.Stance) int {
		return slices.Index([]hello.Stance{hello.Yields, hello.OnInterface, hello.Answers}, stance)
	}
	for other, of := range s {
		stance := of[a]
		if r, least := rank(stance), rank(best); r > least || r == least && r >= 0 && (other == now || node != now && other < node) {
			best, node = stance, other
		}
	}
	return best, node
}

// due returns the addresses to adopt, and whether others are to be told anything else than before. While a living
// node does not hear this one, or is not heard, it may be the one that answers.
func (b *backups) due(now time.Time, hears bool) (adopt []netip.Addr, news bool) {
	asks := 0
	for _, w := range b.of {
		if w.active == "" && (w.asked || !now.Before(w.due)) {
			asks++
		}
	}
	for a, w := range b.of {
		switch {
		case w.active != "" || now.Before(w.due):
		case !w.asked:
			within := activeDown + time.Duration(asks)*claimTime
			w.asked, w.due, news = true, now.Add(within), true
		case !hears:
			w.due = now.Add(hearAgain)
		default:
			adopt = append(adopt, a)
		}
	}
	return adopt, news
}

// claims ask the nodes which of them answers.
func (b *backups) claims() []hello.Claim {
	var all []hello.Claim
	for a, w := range b.of {
		if w.asked {
			all = append(all, hello.Claim{Address: a, Stance: hello.Leaves})
		}
	}
	return all
}

// next is when due has something to do; zero: never.
func (b *backups) next() time.Time {
	var next time.Time
	for _, w := range b.of {
		if w.active == "" {
			next = sooner(next, w.due)
		}
	}
	return next
}
