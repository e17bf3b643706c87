package socket

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// tableMessage is how a table differs from the one before it on the connection. The agent chooses Number, which comes
// back with the states that follow from the table.
//
// A list of a thousand candidates with each of ten thousand addresses makes tens of megabytes. But mostly all nodes are
// candidates for all addresses, in an order that the hash gives. So nodes, lists of nodes, and tiers of such lists
// are numbered as they come, and claims refer to them by these numbers, on the same connection, from then on.
type tableMessage struct {
	Number    uint64
	Whole     bool             `json:",omitempty"` // nothing of before counts, numbers neither
	Rest      *rest            `json:",omitempty"` // nil: as before
	Names     []string         `json:",omitempty"`
	Lists     [][]int          `json:",omitempty"`
	Tiers     [][]int          `json:",omitempty"`
	Claims    change[claim]    `json:",omitzero"`
	Elsewhere change[struct{}] `json:",omitzero"`
	Digests   *desired.Digests `json:",omitempty"` // nil: as before
}

// rest is a table without Claims, Elsewhere and Digests. Its key is not printed as a secret is.
type rest struct {
	api.Table

	Key []byte
}

// claim is a desired.Candidacy. Lists and tiers, and First, are counted from 1; 0: none. There are Candidates only where
// there are no Tiers.
type claim struct {
	Candidates       int           `json:",omitempty"`
	Tiers            int           `json:",omitempty"`
	First            int           `json:",omitempty"`
	Named            int           `json:",omitempty"`
	Interfaces       []string      `json:",omitempty"`
	AnnounceInterval time.Duration `json:",omitempty"` // ns
	NoPreempt        bool          `json:",omitempty"`
}

// difference is how a table differs from the one before it.
type difference struct {
	rest      *api.Table // without Claims, Elsewhere and Digests; nil: as before
	claims    change[desired.Candidacy]
	elsewhere change[struct{}]
	digests   *desired.Digests // nil: as before
}

func differenceOf(before, now *api.Table) (d difference) {
	if rest := restOfTable(*now); !reflect.DeepEqual(rest, restOfTable(*before)) {
		d.rest = &rest
	}
	var c comparison
	d.claims = changeOf(before.Claims, now.Claims, c.equal)
	if !slices.Equal(before.Elsewhere, now.Elsewhere) {
		d.elsewhere = changeOf(setOf(before.Elsewhere), setOf(now.Elsewhere), func(_, _ struct{}) bool { return true })
	}
	if before.Digests != now.Digests {
		d.digests = &now.Digests
	}
	return d
}

func (d difference) none() bool {
	return d.rest == nil && d.digests == nil && d.claims.none() && d.elsewhere.none()
}

func restOfTable(t api.Table) api.Table {
	t.Claims, t.Elsewhere, t.Digests = nil, nil, desired.Digests{}
	return t
}

func setOf(addresses []netip.Addr) map[netip.Addr]struct{} {
	set := make(map[netip.Addr]struct{}, len(addresses))
	for _, a := range addresses {
		set[a] = struct{}{}
	}
	return set
}

// comparison compares claims. Most share their tiers, so the last comparison of tiers is kept.
type comparison struct {
	a, b *election.Tiers
	same bool
}

func (c *comparison) equal(a, b desired.Candidacy) bool {
	return c.tiers(a.Tiers, b.Tiers) && a.First == b.First && a.AnnounceInterval == b.AnnounceInterval && a.NoPreempt == b.NoPreempt &&
		slices.Equal(a.Interfaces, b.Interfaces) && sameList(a.Named, b.Named) &&
		(a.Tiers != nil || sameList(a.Candidates, b.Candidates))
}

func (c *comparison) tiers(a, b *election.Tiers) bool {
	if a == b {
		return true
	}
	if a != c.a || b != c.b {
		*c = comparison{a, b, a.Equal(b)}
	}
	return c.same
}

// listing tells one list from another, and from its copies.
type listing struct {
	first *string
	size  int
}

func listingOf(nodes []string) listing {
	if len(nodes) == 0 {
		return listing{}
	}
	return listing{&nodes[0], len(nodes)}
}

func sameList(a, b []string) bool { return listingOf(a) == listingOf(b) || slices.Equal(a, b) }

// spare is how many nodes more may be in lists than twice as many as a whole table has, before one begins anew.
const spare = 1 << 16

// writer makes the messages of one connection.
type writer struct {
	sent api.Table

	names, lists, tiers map[string]int // counted from 1, by content
	size, room          int            // nodes in the lists, and how many may be
	// Of one message: what its lists and tiers are known to be without a look at their content.
	listed map[listing]int
	tiered map[*election.Tiers]int
	m      tableMessage
}

// message returns what is to be told of a table after the last one.
func (w *writer) message(number uint64, t *api.Table) tableMessage {
	whole := w.size >= w.room
	if whole {
		*w = writer{names: map[string]int{}, lists: map[string]int{}, tiers: map[string]int{}, room: w.room}
	}
	w.listed, w.tiered = map[listing]int{}, map[*election.Tiers]int{}
	w.m = tableMessage{Number: number, Whole: whole}
	d := differenceOf(&w.sent, t)
	w.sent, w.m.Elsewhere, w.m.Digests = *t, d.elsewhere, d.digests
	if d.rest != nil {
		w.m.Rest = &rest{Table: *d.rest, Key: []byte(d.rest.Key)}
	}
	if len(d.claims.Set) > 0 {
		w.m.Claims.Set = make(map[netip.Addr]claim, len(d.claims.Set))
	}
	for a, c := range d.claims.Set {
		w.m.Claims.Set[a] = w.claim(c)
	}
	w.m.Claims.Gone = d.claims.Gone
	if whole {
		w.room = 2*w.size + spare
	}
	m := w.m
	w.listed, w.tiered, w.m = nil, nil, tableMessage{}
	return m
}

func (w *writer) claim(c desired.Candidacy) claim {
	out := claim{Named: w.list(c.Named), Interfaces: c.Interfaces, AnnounceInterval: c.AnnounceInterval, NoPreempt: c.NoPreempt}
	if c.Tiers == nil {
		out.Candidates = w.list(c.Candidates)
		return out
	}
	out.Tiers = w.tiersOf(c.Tiers)
	if c.First != "" {
		out.First = w.name(c.First)
	}
	return out
}

func (w *writer) name(node string) int {
	if w.names[node] == 0 {
		w.m.Names = append(w.m.Names, node)
		w.names[node] = len(w.names) + 1
	}
	return w.names[node]
}

func (w *writer) list(nodes []string) int {
	if len(nodes) == 0 {
		return 0
	}
	if i := w.listed[listingOf(nodes)]; i > 0 {
		return i
	}
	content := strings.Join(nodes, "\n")
	if w.lists[content] == 0 {
		list := make([]int, len(nodes))
		for i, node := range nodes {
			list[i] = w.name(node)
		}
		w.m.Lists = append(w.m.Lists, list)
		w.lists[content] = len(w.lists) + 1
		w.size += len(nodes)
	}
	w.listed[listingOf(nodes)] = w.lists[content]
	return w.lists[content]
}

func (w *writer) tiersOf(t *election.Tiers) int {
	if i := w.tiered[t]; i > 0 {
		return i
	}
	lists := make([]int, len(t.Groups()))
	var content strings.Builder
	for i, group := range t.Groups() {
		lists[i] = w.list(group)
		content.WriteString(strings.Join(group, "\n") + "\n\n")
	}
	key := content.String()
	if w.tiers[key] == 0 {
		w.m.Tiers = append(w.m.Tiers, lists)
		w.tiers[key] = len(w.tiers) + 1
		w.size += len(lists)
	}
	w.tiered[t] = w.tiers[key]
	return w.tiers[key]
}
