package socket

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/election"
	"fairlead.dev/fairlead/speaker/pulse/api"
)

// reader makes tables of the messages of one connection.
type reader struct {
	orders *orders
	table  api.Table
	names  []string
	lists  [][]string
	tiers  []*election.Tiers
}

// read returns the table that a message makes of the one before. It returns an error for a message that is not about
// that one, or that no table follows from; then the reader is of no use any more.
func (r *reader) read(m tableMessage) (api.Table, error) {
	if m.Whole {
		*r = reader{orders: r.orders}
	}
	t := r.table
	if m.Rest != nil {
		t = m.Rest.Table
		t.Key = view.Secret(m.Rest.Key)
	}
	if t.Node == "" {
		return t, errors.New("it names no node")
	}
	for _, b := range t.BFD {
		if err := checkBFD(b); err != nil {
			return t, err
		}
	}
	if err := r.learn(m); err != nil {
		return t, err
	}
	claims, err := r.claims(m.Claims)
	if err != nil {
		return t, err
	}
	if t.Claims, err = claims.after(r.table.Claims); err != nil {
		return t, fmt.Errorf("claims: %w", err)
	}
	if t.Elsewhere = r.table.Elsewhere; !m.Elsewhere.none() {
		set, err := m.Elsewhere.after(setOf(t.Elsewhere))
		if err != nil {
			return t, fmt.Errorf("elsewhere: %w", err)
		}
		t.Elsewhere = slices.SortedFunc(maps.Keys(set), netip.Addr.Compare)
	}
	if t.Digests = r.table.Digests; m.Digests != nil {
		t.Digests = *m.Digests
	}
	r.orders.keep(t.Claims, m.Claims.Gone, m.Whole)
	r.table = t
	return t, nil
}

// learn numbers the names, lists and tiers of a message.
func (r *reader) learn(m tableMessage) error {
	r.names = append(r.names, m.Names...)
	for _, list := range m.Lists {
		nodes := make([]string, len(list))
		for i, at := range list {
			if at < 1 || at > len(r.names) {
				return fmt.Errorf("list %d: node %d of %d", len(r.lists)+1, at, len(r.names))
			}
			nodes[i] = r.names[at-1]
		}
		r.lists = append(r.lists, nodes)
	}
	for _, lists := range m.Tiers {
		var groups [][]string
		size := 0
		for _, at := range lists {
			group, err := r.list(at)
			if err != nil || !slices.IsSorted(group) {
				return fmt.Errorf("tiers %d: list %d of %d, which is to be sorted", len(r.tiers)+1, at, len(r.lists))
			}
			// Refused before memory is taken for them: one long list may come a million times.
			if size += len(group); size > len(r.names) {
				return fmt.Errorf("tiers %d have %d nodes of %d, so some twice", len(r.tiers)+1, size, len(r.names))
			}
			groups = append(groups, group)
		}
		tiers := election.NewTiers(groups...)
		if all := tiers.Among(); len(slices.Compact(slices.Clone(all))) < len(all) {
			return fmt.Errorf("tiers %d have a node twice", len(r.tiers)+1)
		}
		r.tiers = append(r.tiers, tiers)
	}
	return nil
}

// list returns the list of a number, and an error if there is none.
func (r *reader) list(number int) ([]string, error) {
	switch {
	case number == 0:
		return nil, nil
	case number < 0 || number > len(r.lists):
		return nil, fmt.Errorf("list %d of %d", number, len(r.lists))
	}
	return r.lists[number-1], nil
}

// claims returns what is to change of the claims, and an error if it refers to what there is not.
func (r *reader) claims(c change[claim]) (change[desired.Candidacy], error) {
	r.orders.mu.Lock()
	defer r.orders.mu.Unlock()
	out := change[desired.Candidacy]{Gone: c.Gone}
	if len(c.Set) > 0 {
		out.Set = make(map[netip.Addr]desired.Candidacy, len(c.Set))
	}
	for a, c := range c.Set {
		claim, err := r.claim(a, c)
		if err != nil {
			return out, fmt.Errorf("claim for %s: %w", a, err)
		}
		out.Set[a] = claim
	}
	return out, nil
}

// claim returns a claim. It returns an error for one that would have announcements without a pause, too.
func (r *reader) claim(a netip.Addr, c claim) (desired.Candidacy, error) {
	out := desired.Candidacy{Interfaces: c.Interfaces, AnnounceInterval: c.AnnounceInterval, NoPreempt: c.NoPreempt}
	switch {
	case c.AnnounceInterval != 0 && c.AnnounceInterval < time.Second:
		return out, fmt.Errorf("announced every %v", c.AnnounceInterval)
	case c.Tiers < 0 || c.Tiers > len(r.tiers) || c.First < 0 || c.First > len(r.names):
		return out, fmt.Errorf("tiers %d of %d, node %d of %d", c.Tiers, len(r.tiers), c.First, len(r.names))
	}
	var err error
	if out.Named, err = r.list(c.Named); err != nil {
		return out, err
	}
	if c.First > 0 {
		out.First = r.names[c.First-1]
	}
	if c.Tiers == 0 {
		out.Candidates, err = r.list(c.Candidates)
		return out, err
	}
	out.Tiers = r.tiers[c.Tiers-1]
	out.Candidates = r.orders.of(a, out)
	return out, nil
}

// orders are those of candidates, of all connections, since the order of a thousand candidates of ten thousand addresses
// takes seconds, and a new agent mostly has the table of the one before.
type orders struct {
	mu     sync.Mutex
	ranks  election.Orders
	last   map[netip.Addr]desired.Candidacy // the claims of the last table
	before comparison
}

// of returns the candidates of a claim that has tiers.
func (o *orders) of(a netip.Addr, claim desired.Candidacy) []string {
	if last := o.last[a]; last.Tiers != nil && last.First == claim.First && o.before.tiers(last.Tiers, claim.Tiers) {
		return last.Candidates
	}
	return claim.Tiers.Order(o.ranks.Rank(a, claim.Tiers.Among()), claim.First)
}

// keep takes in the claims of a table, and forgets what is not in it.
func (o *orders) keep(claims map[netip.Addr]desired.Candidacy, gone []netip.Addr, whole bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = claims
	if whole {
		o.ranks.Keep(func(a netip.Addr) bool { return claims[a].Tiers != nil })
	}
	for _, a := range gone {
		o.ranks.Forget(a)
	}
}

// checkBFD returns an error for what no session can be made of.
func checkBFD(b desired.BFD) error {
	switch {
	case !b.Peer.IsValid() || b.Peer.Is4In6() || b.Peer.Zone() != "" && !b.Peer.IsLinkLocalUnicast():
		return fmt.Errorf("BFD session with the address %v", b.Peer)
	case b.Local.IsValid() && (b.Local.Is4() != b.Peer.Is4() || b.Local.Zone() != b.Peer.Zone()):
		return fmt.Errorf("BFD session from %v to %v", b.Local, b.Peer)
	case b.Transmit <= 0 || b.Receive < 0 || max(b.Transmit, b.Receive) > time.Hour || b.Multiplier == 0:
		return fmt.Errorf("BFD session with %v: every %v and %v, %d times", b.Peer, b.Transmit, b.Receive, b.Multiplier)
	}
	return nil
}
