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

// presumedFor is for how long a node counts as the one that answers for an address without preemption, unless a hello
// says that it does: as long as several hellos take. See incumbents.
const presumedFor = 300 * time.Millisecond

// claimsWithin is how seldom claims may be told so that a node which has listened for a detection time has heard all.
const claimsWithin = 100 * time.Millisecond

// incumbents are the nodes that answer for the addresses which no candidate takes from them
// (desired.Candidacy.NoPreempt; VRRP's Preempt_Mode off, RFC 9568). A node that answers keeps such an address while it
// is alive and able. Without more, each node finds the first candidate that is able, as for all addresses. So a node that
// answers and has a candidate before it, be that able or not, or dead, claims the address in its hellos, with its epoch,
// and all others count it as the owner: the claim with the highest epoch. One that claimed an address only once it knew the
// candidate to be alive would be too late where its process stands still meanwhile.
//
// A node that has just begun, or that heard no network until now, takes such an address only after the time that it takes
// to hear of all claims: until then the first able candidate beside it counts as the owner. So does, for
// presumedFor, the node that was the owner when the order of the candidates changed.
//
// A node whose process was restarted within its hold does not know what it had. The first able candidate says to which node it
// leaves an address, and that one goes on.
//
// What a node takes while it does not hear most of the others has the lowest epoch: of two parts of a network
// that meet again, the node that had the address goes on.
type incumbents struct {
	of     map[netip.Addr]incumbent
	told   map[netip.Addr]incumbent // by the hellos of other nodes
	apart  map[string]time.Time     // since when other nodes are not heard that are heard by others
	defied map[netip.Addr]time.Time // since when the first able candidate claims them, too, and has not the higher epoch
	back   map[netip.Addr]bool      // the first able candidate leaves them to this node
	until  time.Time                // this node does not know all claims until then; zero: it does
	turns  bool                     // until is for nodes that have more claims than a hello has
	peers  int                      // other nodes that were alive
	ups    time.Time                // when listening after a link came up ends, as far as until has it
	// gathered is until when the nodes that begin with this one, as after an outage, have time to say that they serve;
	// gathers tells whether a node may be one.
	gathered time.Time
	gathers  func(node string) bool
	// began: this node has heard the others, and served: it was not cut off.
	began, served bool
	wake          time.Time // when a presumption ends; zero: none does
	// say are those that this node claims once it answers, gone those that it claimed, until when that is told, and leaves those that it
	// leaves to others, by which.
	gone   map[netip.Addr]time.Time
	had    map[netip.Addr]incumbent // what this node answered for until a moment ago, by its own epoch
	say    map[netip.Addr]bool
	leaves map[netip.Addr]string
}

// incumbent is the node of one address.
type incumbent struct {
	node  string
	epoch uint64
	told  bool      // it claimed so, and
	now   bool      // it did in the last step
	until time.Time // it counts as such unless more is heard
}

// isLater tells whether one claim has precedence over another one.
func (i incumbent) isLater(o incumbent) bool {
	return i.epoch > o.epoch || i.epoch == o.epoch && i.node < o.node
}

// hear takes in what other nodes claim, before the owners are found. A node that does not serve is cut off.
func (i *incumbents) hear(now time.Time, t *api.Table, v hello.View, listens time.Time, serves bool) {
	i.begin(now)
	all := 0
	for _, claim := range t.Claims {
		if claim.NoPreempt {
			all++
		}
	}
	if all == 0 || !v.Settled {
		*i = incumbents{}
		return
	}
	joined := i.began && !i.served && serves
	i.served = serves
	peers, few := 0, true
	for node, m := range v.Alive {
		if node != t.Node {
			peers, few = peers+1, few && len(m.Claims) < hello.AtOnce
			i.read(t, node, m)
		}
	}
	whole := now.Add(2 * hello.TurnOf(all, peers+1))
	if few && hello.TurnOf(0, peers+1) > claimsWithin { // among so many nodes a claim is told more seldom
		few, whole = false, now.Add(2*hello.TurnOf(0, peers+1))
	}
	if !i.began || joined {
		i.gathered = now.Add(2 * presumedFor)
		i.gathers = func(node string) bool {
			return v.IsAlive(node) && !v.Alive[node].Serving || joined && slices.Contains(v.Silent, node)
		}
	}
	switch {
	case joined || listens.After(i.ups):
		i.until, i.turns = now.Add(presumedFor), false
	case !i.began && !few:
		i.until, i.turns = whole, true
	case peers < i.peers: // the one that died may be one that was waited for
		i.until = time.Time{}
	case !i.until.IsZero() && !now.Before(i.until) && !i.turns && !few:
		i.until, i.turns = whole, true
	}
	i.began, i.ups = true, later(i.ups, listens)
	i.peers = peers
	maps.DeleteFunc(i.apart, func(node string, _ time.Time) bool { return !slices.Contains(v.Apart, node) })
	for _, node := range v.Apart {
		if _, known := i.apart[node]; !known {
			i.apart[node] = now
		}
		if is := i.apart[node].Add(presumedFor); is.After(now) {
			i.wake = sooner(i.wake, is)
		}
	}
	maps.DeleteFunc(i.of, func(a netip.Addr, _ incumbent) bool { return !t.Claims[a].NoPreempt })
	maps.DeleteFunc(i.defied, func(a netip.Addr, _ time.Time) bool { return !t.Claims[a].NoPreempt })
}

// begin forgets what is over, and what was found in the last step.
func (i *incumbents) begin(now time.Time) {
	if i.of == nil {
		i.of, i.apart, i.defied = map[netip.Addr]incumbent{}, map[string]time.Time{}, map[netip.Addr]time.Time{}
		i.gone, i.had = map[netip.Addr]time.Time{}, map[netip.Addr]incumbent{}
	}
	for a, said := range i.say {
		if said {
			i.gone[a] = now.Add(lingers)
		}
	}
	maps.DeleteFunc(i.had, func(_ netip.Addr, in incumbent) bool { return !now.Before(in.until) })
	maps.DeleteFunc(i.gone, func(_ netip.Addr, until time.Time) bool { return !now.Before(until) })
	i.told, i.back, i.leaves, i.say, i.wake = map[netip.Addr]incumbent{}, map[netip.Addr]bool{}, map[netip.Addr]string{}, map[netip.Addr]bool{}, time.Time{}
}

// read takes in the claims of another node.
func (i *incumbents) read(t *api.Table, node string, m hello.Member) {
	for _, c := range m.Claims {
		claim := t.Claims[c.Address]
		if !claim.NoPreempt {
			continue
		}
		it := incumbent{node: node, epoch: c.Epoch}
		known, is := i.told[c.Address]
		switch {
		case c.Stance == hello.Answers && slices.Contains(claim.Candidates, node) && (!is || it.isLater(known)):
			i.told[c.Address] = it
		case c.Stance == hello.LeftTo && hello.NumberOf(t.Node) == c.Epoch:
			i.back[c.Address] = true
		case c.Stance != hello.Answers && i.of[c.Address].node == node:
			delete(i.of, c.Address)
		}
	}
}

// candidacy is what the owner of an address follows from.
type candidacy struct {
	address netip.Addr
	claim   desired.Candidacy
	view    hello.View
	self    string
	own     *hello.Member // this node, as it is about to be
}

// able tells whether a node is alive and able to answer.
func (q candidacy) able(node string) bool {
	if node == q.self {
		return q.own.CanServe(q.address)
	}
	return q.view.CanServe(node, q.address)
}

// keeper finds the owners at a time.
type keeper struct {
	*incumbents

	now    time.Time
	epochs map[netip.Addr]uint64 // of what this node answers for, and is not about to hand over
}

// keeper is what is known of the incumbents by now.
func (m *Machine) keeper(now time.Time) keeper {
	k := keeper{&m.incumbents, now, map[netip.Addr]uint64{}}
	for a, claim := range m.table.Claims {
		if h, releases := m.releases[a]; claim.NoPreempt && m.isAnswered(a) && (!releases || h.ask.IsZero()) {
			k.epochs[a] = m.arbitration.epochs[a]
		}
	}
	return k
}

// mayKeep tells whether a node goes on answering instead of the first able candidate: not one that clients do not reach,
// while they reach that one. Of two nodes that do not hear each other for long, though others do, neither knows what the
// other one claims: the table decides.
func (k keeper) mayKeep(q candidacy, node, first string) bool {
	if node == first {
		return true
	}
	other := node
	if node == q.self {
		other = first
	}
	if (node == q.self || first == q.self) && k.isApart(other) {
		return false
	}
	return slices.Contains(q.claim.Candidates, node) && q.able(node) &&
		(q.claim.IsNamed(node) || !q.view.Alive[node].Lacks(q.address) || q.view.Alive[first].Lacks(q.address))
}

// isApart tells whether a node has not been heard for long, though others hear it.
func (k keeper) isApart(node string) bool {
	since, is := k.apart[node]
	return is && !k.now.Before(since.Add(presumedFor))
}

// owner is the node that answers for an address, of which first is the first able candidate.
func (k keeper) owner(q candidacy, first string) string {
	in := k.find(q, first)
	if in.node == q.self {
		delete(k.of, q.address)
		k.say[q.address] = slices.Index(q.claim.Candidates, q.self) > 0 || k.back[q.address] || slices.ContainsFunc(q.view.Apart, k.isApart)
		return q.self
	}
	if epoch, answers := k.epochs[q.address]; answers {
		k.had[q.address] = incumbent{epoch: epoch, until: k.now.Add(2 * lingers)}
	}
	k.of[q.address] = in
	if in.node != first {
		k.wake = sooner(k.wake, in.until)
	}
	if in.told && first == q.self {
		k.leaves[q.address] = in.node
	}
	return in.node
}

// find is that node, and until when it counts as such unless more is heard.
func (k keeper) find(q candidacy, first string) incumbent {
	epoch, answers := k.epochs[q.address]
	self := incumbent{node: q.self, epoch: epoch}
	told, is := k.told[q.address]
	is = is && k.mayKeep(q, told.node, first)
	was := k.of[q.address]
	switch {
	case answers && k.mayKeep(q, q.self, first) && (!is || !told.isLater(self)) && !k.isUnheard(q.address, is && told.node == first):
		return self
	case is:
		told.told, told.now, told.until = true, true, k.now.Add(k.patience())
		return told
	case k.back[q.address] && k.mayKeep(q, q.self, first):
		return self
	case was.node != "" && was.node != first && (was.now || k.now.Before(was.until)) && k.mayKeep(q, was.node, first):
		if was.now {
			was.now, was.until = false, k.now.Add(k.patience())
		}
		return was
	case first == q.self && k.now.Before(k.gathered) && q.before(k.gathers) != "":
		return incumbent{node: q.before(k.gathers), until: k.gathered}
	case first == q.self && k.now.Before(k.until):
		if second, ok := near(q.claim, q.address, q.view, func(node string) bool { return node != q.self && q.able(node) }); ok {
			return incumbent{node: second, until: k.until}
		}
	}
	return incumbent{node: first, until: k.now.Add(presumedFor)}
}

// epoch is that of an address that is taken now, 0: a new one. What this node had until a moment ago, before another node
// claimed it that does not any more, it takes with the epoch that it had. alone: it does not hear most of the others.
func (i *incumbents) epoch(a netip.Addr, alone bool) uint64 {
	switch had, is := i.had[a]; {
	case is:
		return had.epoch
	case alone:
		return hello.LowestEpoch
	}
	return 0
}

// patience is for how long a claim holds that is not heard any more: some turns of it may be lost, and a process that is
// restarted claims nothing until it is told what it had.
func (i *incumbents) patience() time.Duration {
	return max(lingers, 8*hello.TurnOf(len(i.of), i.peers+1))
}

// isUnheard tells whether the first able candidate goes on claiming an address that this node claims with a higher epoch:
// it does not hear this one.
func (k keeper) isUnheard(a netip.Addr, claims bool) bool {
	since, is := k.defied[a]
	switch {
	case !claims:
		delete(k.defied, a)
	case !is:
		k.defied[a] = k.now
	}
	return claims && is && !k.now.Before(since.Add(presumedFor))
}

// before is a candidate before this node of which that is true; empty: there is none.
func (q candidacy) before(is func(node string) bool) string {
	at := max(slices.Index(q.claim.Candidates, q.self), 0)
	if i := slices.IndexFunc(q.claim.Candidates[:at], is); i >= 0 {
		return q.claim.Candidates[i]
	}
	return ""
}

// claims are what the others are told, by address.
func (i *incumbents) claims(epochs map[netip.Addr]uint64, disputed func(netip.Addr) bool) []hello.Claim {
	var all []hello.Claim
	for a := range i.gone {
		if i.of[a].node != "" && i.leaves[a] == "" && !disputed(a) {
			all = append(all, hello.Claim{Address: a, Stance: hello.Stopped})
		}
	}
	for a, says := range i.say {
		if says && epochs[a] > 0 && !disputed(a) {
			all = append(all, hello.Claim{Address: a, Stance: hello.Answers, Epoch: epochs[a]})
		}
	}
	for a, node := range i.leaves {
		if !disputed(a) {
			all = append(all, hello.Claim{Address: a, Stance: hello.LeftTo, Epoch: hello.NumberOf(node)})
		}
	}
	return all
}

// presume counts a node as the owner for a moment that does not hear this one; see asymmetric.go.
func (k keeper) presume(a netip.Addr, claim desired.Candidacy, node string) {
	if claim.NoPreempt {
		k.of[a] = incumbent{node: node, until: k.now.Add(presumedFor)}
		k.wake = sooner(k.wake, k.of[a].until)
	}
}

// precede notes that what comes to this node comes from the incumbents.
func (i *incumbents) precede(previous previousOwners) {
	for a, in := range i.of {
		previous[a] = in.node
	}
}

// isDue tells whether the owners are to be found anew since time has passed.
func (i *incumbents) isDue(now time.Time) bool { return !i.wake.IsZero() && !now.Before(i.wake) }
