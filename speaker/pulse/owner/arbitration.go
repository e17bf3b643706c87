package owner

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

const (
	// disputeAfter is for how long two nodes may answer before they talk about it: as long
	// as an ordinary hand-over takes, in which one hears the other and stops.
	disputeAfter = 40 * time.Millisecond
	// defendAfter is how much later a node says again where the address is, if that node is not
	// heard in hellos by then; until they have talked it looks that often.
	defendAfter = 25 * time.Millisecond
	// takeTurns is how often it is asked whether a node is still there that is not heard otherwise.
	takeTurns = 100 * time.Millisecond
	// lingers is for how long a dispute goes on after it was heard of last; longer by the
	// turns that it takes to hear of all.
	lingers = time.Second
	// mutes is how many addresses left to nodes that are not heard are asked for in a turn,
	// beside the first one of each of these nodes; and muteAsks how often in vain until one counts
	// as free. A node of which nothing is heard in so many turns counts as gone.
	mutes    = 100
	muteAsks = 5
)

// arbitration are the addresses for which another node answers, too, though by the table of this
// node it is this one's. It is heard on the wire, as clients hear it.
//
// Nodes that hear each other may have different tables: one that lost the API server has an
// old one. They tell each other since which epoch they answer, and the one that took the
// address later goes on: it is the one that clients have heard last, and the one whose table
// is the newer one. The other leaves it until it hears that it is free.
//
// A node that does not hear the other one in hellos, though in frames, goes by the table:
// the first of the candidates goes on. That one is left the address only once it has replied
// to a poll, and while it goes on to do so: any station can send a frame in the name of a dead node.
//
// Machine calls due when next says so, and then keep.
type arbitration struct {
	epochs map[netip.Addr]uint64 // when what is answered for was taken
	of     map[netip.Addr]*dispute
	nodes  int // that are alive
	turn   int
	at     time.Time      // of the next turn
	looked time.Time      // when keep was called last
	vain   map[string]int // turns since a node was heard on the wire that is heard there only
	// polls ask nodes of which no hello comes whether they answer, as a frame with their MAC says.
	polls map[netip.Addr]*poll
}

// dispute is one address.
type dispute struct {
	begins time.Time // it is talked about from then on
	tell   time.Time // until then
	talked time.Time // when another node said last that it would answer
	again  uint64    // how often it began again to be talked about
	// with is the node that the address is left to, since the epoch theirs, until then
	// unless more is heard of it.
	with   string
	theirs uint64
	left   time.Time
	mute   bool // the node is heard on the wire only
	asked  int  // how often it was asked for in vain
	// stopped: this node does not answer for it any more.
	stopped  bool
	defended time.Time     // when it was said again where the address is
	rest     time.Duration // before it is said once more
	// defend is when to say so again; zero: not. by is the node that was seen on the wire.
	defend time.Time
	by     string
}

func (d *dispute) isLeft(now time.Time) bool { return now.Before(d.left) }

// claimed takes in that another node claims an address on the wire, which this node answers
// for or has left. It tells whether anything is to be done at once, and whether to say again
// where the address is.
func (ds *arbitration) claimed(now time.Time, claim neighbour.Claim, node string, t *api.Table, v hello.View) (news, defend bool) {
	if node == "" || node == t.Node || claim.Probe {
		return false, false
	}
	d := ds.of[claim.Address]
	if slices.Contains(v.Silent, node) {
		candidates := t.Claims[claim.Address].Candidates
		theirs, ours := slices.Index(candidates, node), slices.Index(candidates, t.Node)
		if theirs < 0 || ours <= theirs {
			if d == nil {
				d = ds.open(claim.Address, now)
			}
			if defend = !now.Before(d.defended.Add(d.rest)); defend {
				d.defended, d.rest = now, longer(d.rest)
			}
			d.tell, d.defend = now.Add(lingers), time.Time{}
			return false, defend
		}
		if !ds.confirm(now, claim) {
			return false, false
		}
		if d == nil {
			d = ds.open(claim.Address, now)
		}
		news = !d.isLeft(now)
		d.with, d.mute, d.asked, d.left = node, true, 0, now.Add(ds.round()*(muteAsks+1)+lingers)
		delete(ds.vain, node)
		return news, false
	}
	if d == nil || ds.isStale(now, d) {
		d = ds.open(claim.Address, now.Add(disputeAfter))
	}
	d.tell = now.Add(ds.patience())
	if d.by == "" {
		d.by, d.defend = node, later(now, d.begins).Add(defendAfter)
	}
	return false, false
}

// confirm tells whether a claim is the reply to a poll, and else has its station polled.
func (ds *arbitration) confirm(now time.Time, claim neighbour.Claim) bool {
	p := ds.polls[claim.Address]
	if p == nil {
		if p = (&poll{}); ds.polls == nil {
			ds.polls = map[netip.Addr]*poll{}
		}
		ds.polls[claim.Address] = p
	}
	if p.isAnsweredBy(now, claim) {
		p.left = 0
		return true
	}
	if d := ds.of[claim.Address]; d == nil || !d.isLeft(now) { // or it is polled in turns
		p.begin(now, claim)
	}
	return false
}

// isStale tells whether a dispute is only told of still, so that one which begins now has to be told
// of anew: at once, and not when its turn comes.
func (ds *arbitration) isStale(now time.Time, d *dispute) bool {
	return !d.stopped && !d.isLeft(now) && now.After(d.begins) && now.After(d.talked.Add(lingers))
}

// has tells whether another node is known to answer for an address.
func (ds *arbitration) has(a netip.Addr) bool { return ds.of[a] != nil }

func (ds *arbitration) open(a netip.Addr, begins time.Time) *dispute {
	if ds.of == nil {
		ds.of = map[netip.Addr]*dispute{}
	}
	d := &dispute{begins: begins, talked: begins}
	ds.of[a] = d
	return d
}

// patience is for how long what another node says again and again is waited for. One that has as
// much to say as this one takes turns, of which some are lost.
func (ds *arbitration) patience() time.Duration {
	return max(lingers, 8*hello.TurnOf(len(ds.of), ds.nodes))
}

// round is the time in which all addresses are asked for that are left to nodes which are not heard.
func (ds *arbitration) round() time.Duration { return time.Duration(len(ds.of)/mutes+1) * takeTurns }

// keep takes in what this node would answer for, and what others say of it, and returns the
// addresses that are left to others.
func (ds *arbitration) keep(now time.Time, self string, mine map[netip.Addr][]links.Link, v hello.View) (left map[netip.Addr]bool) {
	ds.looked, ds.nodes = now, len(v.Alive)
	maps.DeleteFunc(ds.polls, func(a netip.Addr, p *poll) bool {
		d := ds.of[a]
		return mine[a] == nil || p.isOver(now) && (d == nil || !d.isLeft(now))
	})
	for a, d := range ds.of {
		_, alive := v.Alive[d.with]
		switch {
		case mine[a] == nil && !d.stopped:
			d.stopped, d.tell, d.left = true, now.Add(ds.patience()), time.Time{}
			if d.mute || now.Before(d.begins) {
				delete(ds.of, a)
			}
		case mine[a] != nil && d.stopped: // it is taken anew
			delete(ds.of, a)
			delete(ds.epochs, a)
		case d.by != "" && slices.Contains(v.Silent, d.by): // it was seen before it was known to be silent
			d.by, d.defend = "", now
		case d.isLeft(now) && alive == d.mute: // it is heard again, or not any more
			delete(ds.of, a)
		}
	}
	for node, m := range v.Alive {
		if node == self || m.Deaf {
			continue
		}
		for _, claim := range m.Claims {
			if mine[claim.Address] != nil {
				ds.judge(now, self, node, claim)
			}
		}
	}
	left = map[netip.Addr]bool{}
	for a, d := range ds.of {
		switch {
		case d.isLeft(now):
			left[a] = true
		case !now.Before(d.tell) && !now.Before(d.begins):
			delete(ds.of, a)
		}
	}
	return left
}

// judge takes in what another node says of an address that is this one's.
func (ds *arbitration) judge(now time.Time, self, node string, claim hello.Claim) {
	d := ds.of[claim.Address]
	switch {
	case claim.Stance == hello.OnInterface || claim.Stance == hello.LeftTo || claim.Stance == hello.Stopped && d == nil:
		return
	case d == nil:
		d = ds.open(claim.Address, now)
	}
	// One without an epoch is taken just now, later than what others have said.
	taken := ds.epochs[claim.Address] == 0 && !d.isLeft(now)
	isLater := func(epoch uint64, of string) bool {
		return claim.Epoch > epoch || claim.Epoch == epoch && node < of
	}
	switch {
	case claim.Stance != hello.Answers:
		if d.with == node {
			d.left = time.Time{}
		}
	case !taken && isLater(ds.epochs[claim.Address], self) && (!d.isLeft(now) || d.with == node || isLater(d.theirs, d.with)):
		d.with, d.theirs, d.mute, d.left = node, claim.Epoch, false, now.Add(ds.patience())
	}
	if d.by != "" {
		d.by, d.defend = "", time.Time{}
	}
	if claim.Stance != hello.Stopped {
		if ds.isStale(now, d) { // the other one talks of it anew, and is to be told at once, too
			d.again++
		}
		d.talked, d.tell = now, now.Add(ds.patience())
	} else if over := now.Add(max(lingers, 2*hello.TurnOf(len(ds.of), ds.nodes))); over.Before(d.tell) {
		d.tell = over // unless yet another node goes on
	}
}

// claims are what the others are told, by address.
func (ds *arbitration) claims(now time.Time) []hello.Claim {
	var all []hello.Claim
	for a, d := range ds.of {
		if d.mute || now.Before(d.begins) {
			continue
		}
		claim := hello.Claim{Address: a, Stance: hello.Answers, Epoch: ds.epochs[a], Again: d.again}
		switch {
		case d.stopped:
			claim.Stance = hello.Stopped
		case d.isLeft(now):
			claim.Stance = hello.Leaves
		}
		all = append(all, claim)
	}
	return all
}

// due returns what is to be asked now, and whether it is time for keep. A node of which no hello came
// for a detection time is quiet, also if it is waited for longer: it was seen to answer, so
// hellos are lost, and it hears by a frame that this node does, too.
func (ds *arbitration) due(now time.Time, quiet func(node string) bool) (say []word, news bool) {
	for a, p := range ds.polls {
		if p.isDue(now) {
			say = append(say, word{neighbour.Probe, a, p.link, p.station})
		}
	}
	for a, d := range ds.of {
		if !d.defend.IsZero() && !now.Before(d.defend) {
			switch {
			case d.stopped || d.isLeft(now):
				d.by, d.defend = "", time.Time{}
			case d.by != "" && !quiet(d.by):
				d.defend = now.Add(defendAfter)
			default:
				say = append(say, word{what: neighbour.Announcement, address: a})
				d.by, d.defend, d.defended, d.rest = "", time.Time{}, now, longer(d.rest)
			}
		}
		for _, at := range []time.Time{d.begins, d.tell, d.left} {
			news = news || at.After(ds.looked) && !now.Before(at)
		}
	}
	if len(ds.of) == 0 || now.Before(ds.at) {
		return say, news
	}
	ds.turn, ds.at = ds.turn+1, now.Add(takeTurns)
	asks, freed := ds.inquire(now)
	return append(say, asks...), news || freed
}

// inquire asks for addresses that are left to nodes which are heard on the wire only: for the first
// of each node, to know whether it is there, and for some others in turns. It tells whether any is
// free since no node answers.
func (ds *arbitration) inquire(now time.Time) (say []word, freed bool) {
	of := map[string][]netip.Addr{}
	for a, d := range ds.of {
		if d.mute && d.isLeft(now) {
			of[d.with] = append(of[d.with], a)
		}
	}
	for node, addresses := range of {
		if ds.vain == nil {
			ds.vain = map[string]int{}
		}
		if ds.vain[node]++; ds.vain[node] > muteAsks {
			ds.free(node)
			delete(ds.vain, node)
			freed = true
			continue
		}
		slices.SortFunc(addresses, netip.Addr.Compare)
		for n := range min(len(addresses), mutes+1) {
			a := addresses[0]
			if n > 0 {
				a = addresses[1+(ds.turn*mutes+n-1)%(len(addresses)-1)]
			}
			d := ds.of[a]
			if d.asked++; d.asked > muteAsks {
				d.left, freed = time.Time{}, true
				continue
			}
			w := word{what: neighbour.Probe, address: a}
			if p := ds.polls[a]; p != nil {
				w.link, w.to, p.asked = p.link, p.station, now
			}
			say = append(say, w)
		}
	}
	maps.DeleteFunc(ds.vain, func(node string, _ int) bool { return of[node] == nil })
	return say, freed
}

// longer is the pause before an address is defended once more, or two would do so for ever.
func longer(rest time.Duration) time.Duration { return min(2*rest+takeTurns/4, lingers) }

// free ends what was left to a node that does not answer any more.
func (ds *arbitration) free(node string) {
	for _, d := range ds.of {
		if d.mute && d.with == node {
			d.left = time.Time{}
		}
	}
}

// next is when due has something to do; zero: never.
func (ds *arbitration) next() time.Time {
	var next time.Time
	for _, p := range ds.polls {
		next = sooner(next, p.next())
	}
	for _, d := range ds.of {
		next = sooner(next, ds.at)
		next = sooner(next, d.defend)
		for _, at := range []time.Time{d.begins, d.tell, d.left} {
			if at.After(ds.looked) {
				next = sooner(next, at)
			}
		}
	}
	return next
}

// leftTo is to which nodes addresses are left.
func (ds *arbitration) leftTo(now time.Time) map[netip.Addr]string {
	left := map[netip.Addr]string{}
	for a, d := range ds.of {
		if d.isLeft(now) {
			left[a] = d.with
		}
	}
	return left
}
