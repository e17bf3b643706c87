package pulse

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
)

// A list of the candidates with each of ten thousand addresses makes tens of megabytes where there are
// a thousand nodes, though mostly all are candidates for all, in an order that the hash gives. So the
// sets are written once, and with a claim which of them in what order its candidates come from. An
// older pulse cannot read that, and has the lists written out; a state says what its sender reads.

// encoder writes claims into a table.
type encoder struct {
	into  *wireTable
	names map[string]int // index of each
	sets  map[string]int // index by content, and by what is one and no copy
	known map[listing]int
	named map[listing]bool        // whose nodes are among the names
	tiers map[*election.Tiers]int // counted from 1
	equal map[string]int          // the same by content
}

// listing tells one slice from another.
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

// encodeClaims writes claims, in tiers where they have some, or all lists out; equal claims give equal bytes.
func (w *wireTable) encodeClaims(claims map[netip.Addr]desired.Candidacy, inTiers bool) {
	e := encoder{into: w, names: map[string]int{}, sets: map[string]int{}, known: map[listing]int{}, named: map[listing]bool{}, tiers: map[*election.Tiers]int{}, equal: map[string]int{}}
	addresses := make([]netip.Addr, 0, len(claims))
	listed := map[*election.Tiers]bool{}
	for a, claim := range claims {
		addresses = append(addresses, a)
		switch {
		case !inTiers || claim.Tiers == nil:
			e.list(claim.Candidates)
		case !listed[claim.Tiers]:
			listed[claim.Tiers] = true
			e.list(claim.Tiers.Among())
		}
		e.list(claim.Named) // who is named need be no candidate
	}
	slices.Sort(w.Names)
	for i, node := range w.Names {
		e.names[node] = i
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	for _, a := range addresses {
		w.Claims = append(w.Claims, e.claim(a, claims[a], inTiers))
	}
}

// list has the nodes be among the names, in whatever order. Most claims share their lists.
func (e *encoder) list(nodes []string) {
	same := listingOf(nodes)
	if e.named[same] {
		return
	}
	e.named[same] = true
	for _, node := range nodes {
		if _, known := e.names[node]; !known {
			e.names[node] = 0
			e.into.Names = append(e.into.Names, node)
		}
	}
}

func (e *encoder) claim(a netip.Addr, claim desired.Candidacy, inTiers bool) wireClaim {
	c := wireClaim{Address: a, Interfaces: claim.Interfaces, AnnounceInterval: claim.AnnounceInterval}
	inTiers = inTiers && claim.Tiers != nil
	if inTiers {
		c.Tiers = e.tiersOf(claim.Tiers)
		if claim.First != "" {
			c.First = 1 + e.names[claim.First]
		}
	} else {
		c.Candidates = e.indices(claim.Candidates)
	}
	switch c.AllNamed = len(claim.Named) > 0 && len(claim.Named) == len(claim.Candidates); {
	case c.AllNamed || len(claim.Named) == 0:
	case inTiers:
		c.NamedSet = 1 + e.set(claim.Named)
	default:
		c.Named = e.indices(claim.Named)
	}
	return c
}

func (e *encoder) indices(nodes []string) []int {
	all := make([]int, len(nodes))
	for i, node := range nodes {
		all[i] = e.names[node]
	}
	return all
}

// set is the index of a set, which is sorted.
func (e *encoder) set(nodes []string) int {
	same := listingOf(nodes)
	i, known := e.known[same]
	if known {
		return i
	}
	content := strings.Join(nodes, "\n")
	if i, known = e.sets[content]; !known {
		i = len(e.into.Sets)
		e.into.Sets = append(e.into.Sets, e.indices(nodes))
		e.sets[content] = i
	}
	e.known[same] = i
	return i
}

func (e *encoder) tiersOf(t *election.Tiers) int {
	if i := e.tiers[t]; i > 0 {
		return i
	}
	sets := make([]int, len(t.Groups()))
	for i, group := range t.Groups() {
		sets[i] = e.set(group)
	}
	content := fmt.Sprint(sets)
	if e.equal[content] == 0 {
		e.into.Tiers = append(e.into.Tiers, sets)
		e.equal[content] = len(e.into.Tiers)
	}
	e.tiers[t] = e.equal[content]
	return e.tiers[t]
}

// reader reads tables. What one has in common with the one before is not reckoned again: the
// order of a thousand candidates of ten thousand addresses takes seconds.
type reader struct {
	mu     sync.Mutex
	orders election.Orders
	tiers  map[string]*election.Tiers // of the last table, by content
	last   map[netip.Addr]ordered
}

// ordered are the candidates that follow from tiers.
type ordered struct {
	tiers      *election.Tiers
	first      string
	candidates []string
}

// shared is what the claims of a table share.
type shared struct {
	sets  [][]string
	tiers []*election.Tiers
}

// claims reads those of a table.
func (r *reader) claims(w wireTable) (map[netip.Addr]desired.Candidacy, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	common, err := r.shared(w)
	if err != nil {
		return nil, err
	}
	claims, last := make(map[netip.Addr]desired.Candidacy, len(w.Claims)), make(map[netip.Addr]ordered, len(w.Claims))
	for _, c := range w.Claims {
		claim, err := c.read(w.Names)
		if err == nil && c.Tiers != 0 {
			last[c.Address], err = r.order(c, w.Names, common)
			claim.Candidates = last[c.Address].candidates
		}
		if err == nil && (c.Tiers != 0 || c.NamedSet != 0) {
			claim.Named, err = c.named(common)
		}
		if err != nil {
			return nil, err
		}
		claims[c.Address] = claim
	}
	r.last = last
	r.orders.Keep(func(a netip.Addr) bool { _, still := last[a]; return still })
	return claims, nil
}

// shared reads the sets and tiers, which are those of the last table as far as they are the same.
func (r *reader) shared(w wireTable) (shared, error) {
	var s shared
	for i, set := range w.Sets {
		nodes := make([]string, 0, len(set))
		for _, at := range set {
			if at < 0 || at >= len(w.Names) || len(nodes) > 0 && nodes[len(nodes)-1] >= w.Names[at] {
				return s, fmt.Errorf("set %d: node %d of %d names, which are sorted", i, at, len(w.Names))
			}
			nodes = append(nodes, w.Names[at])
		}
		s.sets = append(s.sets, nodes)
	}
	known := map[string]*election.Tiers{}
	for i, sets := range w.Tiers {
		var groups [][]string
		var content strings.Builder
		size := 0
		for _, at := range sets {
			if at < 0 || at >= len(s.sets) {
				return s, fmt.Errorf("tiers %d: set %d of %d", i, at, len(s.sets))
			}
			// Refused before memory is taken for them: one large set may come a million times.
			if size += len(s.sets[at]); size > len(w.Names) {
				return s, fmt.Errorf("tiers %d have %d nodes of %d, so some twice", i, size, len(w.Names))
			}
			groups = append(groups, s.sets[at])
			content.WriteString(strings.Join(s.sets[at], "\n") + "\n\n")
		}
		tiers := election.NewTiers(groups...)
		if all := tiers.Among(); len(slices.Compact(slices.Clone(all))) < len(all) {
			return s, fmt.Errorf("tiers %d have a node twice", i)
		}
		if last := r.tiers[content.String()]; last.Equal(tiers) {
			tiers = last
		}
		known[content.String()] = tiers
		s.tiers = append(s.tiers, tiers)
	}
	r.tiers = known
	return s, nil
}

// order is that of the candidates of a claim.
func (r *reader) order(c wireClaim, names []string, common shared) (ordered, error) {
	if c.Tiers < 0 || c.Tiers > len(common.tiers) || c.First < 0 || c.First > len(names) {
		return ordered{}, fmt.Errorf("claim for %s: tiers %d of %d, node %d of %d", c.Address, c.Tiers, len(common.tiers), c.First, len(names))
	}
	o := ordered{tiers: common.tiers[c.Tiers-1]}
	if c.First > 0 {
		o.first = names[c.First-1]
	}
	if last := r.last[c.Address]; last.tiers == o.tiers && last.first == o.first {
		return last, nil
	}
	o.candidates = o.tiers.Order(r.orders.Rank(c.Address, o.tiers.Among()), o.first)
	return o, nil
}

// named are the candidates of which interfaces are named, where sets say it.
func (c wireClaim) named(common shared) ([]string, error) {
	switch {
	case c.NamedSet < 0 || c.NamedSet > len(common.sets):
		return nil, fmt.Errorf("claim for %s: set %d of %d", c.Address, c.NamedSet, len(common.sets))
	case c.NamedSet > 0:
		return common.sets[c.NamedSet-1], nil
	case c.AllNamed && c.Tiers > 0:
		return common.tiers[c.Tiers-1].Among(), nil
	}
	return nil, nil
}

// readsTiers tells, by a state of pulse, whether it reads tables with tiers.
func readsTiers(body []byte) bool {
	var m struct {
		Tiers bool `json:"tiers"`
	}
	return json.Unmarshal(body, &m) == nil && m.Tiers
}

// writtenOut is an encoded table for a pulse that reads no tiers.
func (r *reader) writtenOut(encoded []byte) ([]byte, error) {
	var w wireTable
	if err := json.Unmarshal(encoded, &w); err != nil {
		return nil, err
	}
	claims, err := r.claims(w)
	if err != nil {
		return nil, err
	}
	w.Names, w.Sets, w.Tiers, w.Claims = nil, nil, nil, nil
	w.encodeClaims(claims, false)
	return json.Marshal(w)
}
