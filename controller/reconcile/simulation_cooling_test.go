package reconcile

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/controller/allocation"
	"fairlead.dev/fairlead/controller/ledger"
	"fairlead.dev/fairlead/internal/view"
)

// simulatedCoolDown is that of the pool.
const simulatedCoolDown = 10 * time.Second

// cooledSimulation is what a simulation has beside, of a pool with a cool-down.
type cooledSimulation struct {
	data   map[netip.Prefix]map[string]string // the ConfigMaps that the API server has
	stored map[netip.Prefix]*ledger.Page      // of that, what the leader knows
	flying map[netip.Prefix]*ledger.Page      // sent, and not yet arrived; one a page

	shown map[netip.Addr]map[view.Ref]tenant // by whom, at the last look
	had   map[netip.Addr]map[view.Ref]tenant // since it was free for long enough
	left  map[netip.Addr]time.Time           // when nobody showed it any more

	// promised are reservations that a leader gave an address which rested, or would: its
	// Services may have it, whether or not the reservation ever shows it. The ledger may
	// name such a Service when the leader is gone.
	promised map[netip.Addr]map[view.Ref]tenant
}

// tenant is what is known of who shows an address.
type tenant struct{ reservation bool }

func newCooledSimulation() *cooledSimulation {
	return &cooledSimulation{
		data: map[netip.Prefix]map[string]string{}, stored: map[netip.Prefix]*ledger.Page{}, flying: map[netip.Prefix]*ledger.Page{},
		shown: map[netip.Addr]map[view.Ref]tenant{}, had: map[netip.Addr]map[view.Ref]tenant{}, left: map[netip.Addr]time.Time{},
		promised: map[netip.Addr]map[view.Ref]tenant{},
	}
}

// TestNoAddressTooSoon: whatever the order in which users, writes, events and leaders act,
// at whichever write a leader dies, of a status or of the ledger, before or after it has
// landed, and whatever users delete until another one leads: nobody shows an address that
// somebody else had before it has been free for the cool-down.
func TestNoAddressTooSoon(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { simulate(t, modes{cooling: true}) })
}

// Records and Faults make it the ledger of the leader.
func (s *simulation) Records(a netip.Addr, e ledger.Entry) bool {
	has, ok := s.cooled.stored[ledger.Shard(a)].At(a)
	return ok && has == e
}

func (s *simulation) Faults() map[netip.Prefix]string { return nil }

// wait lets time pass.
func (s *simulation) wait() {
	s.now = s.now.Add(time.Duration(rapid.IntRange(1, 6_000).Draw(s.t, "milliseconds")) * time.Millisecond)
}

// unstored are the pages that are not as they are wanted, and not on their way.
func (s *simulation) unstored() []netip.Prefix {
	var shards []netip.Prefix
	for shard, page := range s.last.book.Pages() {
		if s.cooled.stored[shard] != page {
			shards = append(shards, shard)
		}
	}
	for shard := range s.cooled.stored {
		if s.last.book.Page(shard) == nil {
			shards = append(shards, shard)
		}
	}
	shards = slices.DeleteFunc(shards, func(shard netip.Prefix) bool { _, flies := s.cooled.flying[shard]; return flies })
	slices.SortFunc(shards, netip.Prefix.Compare)
	return slices.Compact(shards)
}

// note puts a page on its way.
func (s *simulation) note() {
	if shards := s.unstored(); len(shards) > 0 {
		shard := rapid.SampledFrom(shards).Draw(s.t, "page")
		s.cooled.flying[shard] = s.last.book.Page(shard)
	}
}

// noted lets a page arrive that is on its way. Now and then the leader dies with it, before
// it has landed or after.
func (s *simulation) noted() {
	shards := slices.SortedFunc(maps.Keys(s.cooled.flying), netip.Prefix.Compare)
	if len(shards) == 0 {
		return
	}
	shard := rapid.SampledFrom(shards).Draw(s.t, "landing")
	fate := rapid.IntRange(0, 9).Draw(s.t, "fate of the writer")
	if fate == 1 {
		s.die()
		return
	}
	s.inscribe(shard)
	if fate == 2 {
		s.die()
	}
}

// inscribe is the API server taking a page, and the leader learning it.
func (s *simulation) inscribe(shard netip.Prefix) {
	page := s.cooled.flying[shard]
	delete(s.cooled.flying, shard)
	if page == nil {
		delete(s.cooled.data, shard)
		delete(s.cooled.stored, shard)
		return
	}
	s.cooled.data[shard], s.cooled.stored[shard] = page.Encode(), page
}

// noteAll lets all pages arrive, and reports whether there were any.
func (s *simulation) noteAll() bool {
	if s.cooled == nil {
		return false
	}
	for _, shard := range s.unstored() {
		s.cooled.flying[shard] = s.last.book.Page(shard)
	}
	some := len(s.cooled.flying) > 0
	for shard := range maps.Clone(s.cooled.flying) {
		s.inscribe(shard)
	}
	return some
}

// vacancy is the time without a leader. The next one knows what is stored.
func (s *simulation) vacancy() {
	for range rapid.IntRange(0, 6).Draw(s.t, "meanwhile") {
		rapid.SampledFrom([]func(){s.user, s.user, s.remove, s.unreserve, s.wait}).Draw(s.t, "in the absence of a leader")()
		s.check()
	}
	clear(s.cooled.flying)
	clear(s.cooled.stored)
	for shard, data := range s.cooled.data {
		book, faults := ledger.Decode(shard, data)
		if len(faults) > 0 {
			s.t.Fatalf("it cannot be read what was written: %v", faults)
		}
		s.cooled.stored[shard] = book.Page(shard)
		s.last.book = s.last.book.Recall(book)

	}
}

// tenants are all who show an address, by address.
func (s *simulation) tenants() map[netip.Addr]map[view.Ref]tenant {
	shown := map[netip.Addr]map[view.Ref]tenant{}
	show := func(text string, ref view.Ref, who tenant) {
		a := netip.MustParseAddr(text)
		if shown[a] == nil {
			shown[a] = map[view.Ref]tenant{}
		}
		shown[a][ref] = who
	}
	for key, service := range s.services {
		for _, i := range service.Status.LoadBalancer.Ingress {
			show(i.IP, view.Ref(key), tenant{})
		}
	}
	for key, r := range s.booked {
		for _, text := range r.Status.Addresses {
			show(text, view.Ref(key), tenant{reservation: true})
		}
	}
	return shown
}

// checkCooled looks for an address that is shown too soon.
func (s *simulation) checkCooled() {
	c := s.cooled
	shown := s.tenants()
	for a, before := range c.shown {
		stays := func(ref view.Ref) bool { _, still := shown[a][ref]; return still }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(before)), stays) {
			c.left[a] = s.now
		}
	}
	for a, by := range shown {
		left, free := c.left[a]
		switch {
		case !free: // who joins those that have it is no stranger
		case s.now.Sub(left) >= simulatedCoolDown:
			delete(c.had, a)
			delete(c.promised, a)
		default:
			for ref, who := range by {
				if !who.mayReturn(ref, c.had[a]) && !who.mayReturn(ref, c.promised[a]) {
					s.t.Fatalf("%s shows %s %v after it was left by %v", ref, a, s.now.Sub(left), c.had[a])
				}
			}
		}
		delete(c.left, a)
		if c.had[a] == nil {
			c.had[a] = map[view.Ref]tenant{}
		}
		maps.Copy(c.had[a], by)
	}
	c.shown = shown
}

// promise notes which reservations the leader has just given addresses that they may have
// although they rest, or will.
func (c *cooledSimulation) promise(given map[view.Ref]allocation.Assignment) {
	reserved := tenant{reservation: true}
	for ref, assignment := range given {
		for _, a := range assignment.Addresses {
			if !reserved.mayReturn(ref, c.had[a]) {
				continue
			}
			if c.promised[a] == nil {
				c.promised[a] = map[view.Ref]tenant{}
			}
			c.promised[a][ref] = reserved
		}
	}
}

// mayReturn reports whether one may show an address that rests: who had it, and a reservation
// of the namespace of one that did. A Service that was about to stand on a reservation may
// come too late to meet it.
func (who tenant) mayReturn(ref view.Ref, had map[view.Ref]tenant) bool {
	if _, returns := had[ref]; returns {
		return true
	}
	for other, was := range had {
		if (who.reservation || was.reservation) && other.Namespace == ref.Namespace {
			return true
		}
	}
	return false
}
