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
	// probeEvery and probes say how an address is asked for before its first use, and
	// probeEvery after the last probe it counts as free. RFC 5227 takes seconds, for hosts
	// that boot behind switches which do; here the link has long been up, and what answers
	// within a millisecond on most networks gets twenty-five, three times.
	probeEvery = 25 * time.Millisecond
	probes     = 3
	// retryProbes is how long after an address was found taken it is asked for again.
	retryProbes = 5 * time.Second
	// mindFor is for how long an address that no node is to answer for any more counts as
	// held: Services lose their last endpoint for a while, and get their addresses back.
	mindFor = 5 * time.Minute
	// sayWithin is how long another node that replied to a probe has to say in its hellos that an interface there has
	// the address, or that it answers.
	sayWithin = time.Second
	// awayFor is for how long only other nodes must have been to answer for an address for it to
	// count as held by one of them: that one asks first, and may learn of it later than this one.
	awayFor = time.Second
)

// probing decides which addresses must be asked for before they are answered for: those
// that no node has ever held. An address that some node may hold is answered for at once:
// one that moves, by a failover or a change of the order or of the candidates, one that comes with
// the first table of a process, which may follow a restart, and one that was held lately. When the machine has just booted
// it is no restart: a copy of the cluster, which begins with the addresses of the first one, asks for them.
//
// A node that replies to a probe holds the address, which moves here, be it that another speaker there replies, as
// MetalLB's. But that node is asked first: if it says in its hellos that an interface there has the address, as
// with the virtual IP of keepalived or kube-vip, that is a conflict, and so it is if an interface of this node has it.
//
// Machine calls due when next says so.
type probing struct {
	self string // this node
	// kernel tells whether an interface of this node has an address, so that the kernel replies for it,
	// and gives the claim that others hear.
	kernel  func(a netip.Addr) (claim neighbour.Claim, does bool)
	booted  bool                // no process of this machine can have answered before this one, and
	first   map[netip.Addr]bool // came with its first table: a node that replies for one hands it over
	began   bool                // a table has come
	held    map[netip.Addr]bool
	gone    map[netip.Addr]time.Time     // the held ones that no node is to answer for any more
	away    map[netip.Addr]time.Time     // since when only other nodes are to answer for them
	pending map[netip.Addr]*addressProbe // ours to answer for, and not answered for yet
}

// addressProbe asks whether an address is free.
type addressProbe struct {
	sent int
	next time.Time           // when the next probe is to be sent, or the verdict is due
	foe  *conflictingStation // the station that has the address; nil: none was heard
	// node replied, by the claim, and is asked in hellos whether an interface there has the address; empty: none.
	node  string
	claim neighbour.Claim
}

// table takes in the addresses that nodes are to answer for, whichever they are.
func (v *probing) table(now time.Time, addresses map[netip.Addr]bool) {
	if !v.began {
		v.began = true
		v.held, v.gone, v.pending = map[netip.Addr]bool{}, map[netip.Addr]time.Time{}, map[netip.Addr]*addressProbe{}
		if v.booted {
			v.first = maps.Clone(addresses)
		} else {
			maps.Copy(v.held, addresses)
		}
		return
	}
	for a := range v.held {
		_, before := v.gone[a]
		switch {
		case addresses[a]:
			delete(v.gone, a)
		case !before:
			v.gone[a] = now
		}
	}
	maps.DeleteFunc(v.gone, func(a netip.Addr, since time.Time) bool {
		over := now.Sub(since) > mindFor
		if over {
			delete(v.held, a)
		}
		return over
	})
}

// elsewhere takes in the addresses that only other nodes are to answer for, before table does all.
// One that is no more among them, and may have come here, was held.
func (v *probing) elsewhere(now time.Time, addresses []netip.Addr) {
	away := make(map[netip.Addr]time.Time, len(addresses))
	for _, a := range addresses {
		away[a] = now
		if since, was := v.away[a]; was {
			away[a] = since
		}
	}
	for a, since := range v.away {
		if _, still := away[a]; !still && now.Sub(since) >= awayFor {
			v.held[a] = true
		}
	}
	v.away = away
}

// vet splits the addresses that are this node's to answer for into those that it may answer
// for and those that it has to wait with. elsewhere are those that another node is to
// answer for, which asks by itself. found tells of which a station is known to have it, and the node that is to answer
// silent: that one withholds it, and this node asks before it succeeds it.
func (v *probing) vet(now time.Time, mine map[netip.Addr][]links.Link, elsewhere []netip.Addr, found func(netip.Addr) bool) (wait map[netip.Addr]bool) {
	for _, a := range elsewhere {
		if v.held[a] = !found(a); !v.held[a] {
			delete(v.held, a)
		}
	}
	maps.DeleteFunc(v.pending, func(a netip.Addr, _ *addressProbe) bool { return mine[a] == nil || v.held[a] })
	wait = map[netip.Addr]bool{}
	for a := range mine {
		if v.held[a] {
			continue
		}
		wait[a] = true
		if v.pending[a] == nil {
			v.pending[a] = &addressProbe{next: now}
		}
	}
	return wait
}

// asks tells whether it is asked for the address.
func (v *probing) asks(a netip.Addr) bool { return v.pending[a] != nil }

// claimed takes in the claim of a station on an address that is asked for, and tells whether
// that changes anything. A node that replies may hold the address, and is asked. A node that
// probes, too, holds nothing.
func (v *probing) claimed(now time.Time, claim neighbour.Claim, of stations) (news bool) {
	q := v.pending[claim.Address]
	switch {
	case q == nil:
		return false
	case of.strange(claim.Station):
		return q.withhold(now, claim, "")
	case claim.Probe:
		return false
	}
	switch node := of.of(claim.Station); {
	case node == "" || node == v.self || v.first[claim.Address]: // maybe one of a node that has not told its stations
	case q.node == "":
		q.node, q.claim, q.next = node, claim, now.Add(sayWithin)
		return true
	default:
		return false
	}
	v.held[claim.Address] = true
	return true
}

// withhold takes in which station has the address, and tells whether that is news. The node is the one of
// which it is a station; empty: none.
func (q *addressProbe) withhold(now time.Time, claim neighbour.Claim, node string) (news bool) {
	if q.foe == nil {
		q.foe = &conflictingStation{Contest: api.Contest{Since: now, Withheld: true}}
	}
	q.sent, q.next, q.node = 0, now.Add(retryProbes), ""
	if news = q.foe.claimed(now, claim); news {
		q.foe.Node = node
	}
	return news
}

// told takes in what other nodes say of the addresses that are asked for.
func (v *probing) told(now time.Time, view hello.View) {
	for node, m := range view.Alive {
		for _, claim := range m.Claims {
			q := v.pending[claim.Address]
			switch {
			case node == v.self || q == nil:
			case claim.Stance == hello.Answers && claim.Epoch > 0:
				v.held[claim.Address] = true
			case claim.Stance == hello.OnInterface && node == q.node:
				q.withhold(now, q.claim, node)
			}
		}
	}
}

// occupied are what this node says of the addresses that others ask for: those that an interface here has.
func (v *probing) occupied(view hello.View, disputed func(netip.Addr) bool) []hello.Claim {
	var all []hello.Claim
	for node, m := range view.Alive {
		for _, claim := range m.Claims {
			if node == v.self || claim.Stance != hello.Leaves || claim.Epoch > 0 || disputed(claim.Address) || v.pending[claim.Address] != nil {
				continue
			}
			if _, does := v.kernel(claim.Address); does {
				all = append(all, hello.Claim{Address: claim.Address, Stance: hello.OnInterface})
			}
		}
	}
	slices.SortFunc(all, func(a, b hello.Claim) int { return a.Address.Compare(b.Address) })
	return slices.Compact(all)
}

// claims ask the nodes whether an interface of one has an address for which one has replied.
func (v *probing) claims(disputed func(netip.Addr) bool) []hello.Claim {
	var all []hello.Claim
	for a, q := range v.pending {
		if q.node != "" && !v.held[a] && !disputed(a) {
			all = append(all, hello.Claim{Address: a, Stance: hello.Leaves})
		}
	}
	return all
}

// due returns the probes to be sent now, and whether an address was found free, or that an interface of this
// node has it.
func (v *probing) due(now time.Time) (say []word, free bool) {
	for a, q := range v.pending {
		if now.Before(q.next) {
			continue
		}
		if q.node != "" {
			v.held[a], free = true, true // it has said nothing else
			continue
		}
		if q.sent == probes {
			if claim, does := v.kernel(a); does {
				free = q.withhold(now, claim, v.self) || free
			} else {
				v.held[a], free = true, true
			}
			continue
		}
		q.sent++
		q.next = now.Add(probeEvery)
		say = append(say, word{what: neighbour.Probe, address: a})
	}
	slices.SortFunc(say, func(a, b word) int { return a.address.Compare(b.address) })
	return say, free
}

// next is when due has something to do; zero: never.
func (v *probing) next() time.Time {
	var next time.Time
	for a, q := range v.pending {
		if !v.held[a] {
			next = sooner(next, q.next)
		}
	}
	return next
}

// conflicts are the addresses that are not answered for since a stranger has them, or the kernel of a node.
func (v *probing) conflicts() map[netip.Addr]api.Contest {
	found := map[netip.Addr]api.Contest{}
	for a, q := range v.pending {
		if q.foe != nil && !v.held[a] {
			found[a] = q.foe.Contest
		}
	}
	return found
}
